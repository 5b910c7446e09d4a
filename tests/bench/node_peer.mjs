// The peer: npm's pg-logical-replication, its pgoutput parser fed with the same messages, JSON.stringify of each change.
//
//     node node_peer.mjs MODULES FILE
//
// MODULES is the directory whose node_modules holds the package, FILE holds the walsender's frames, each behind its
// length. One line per change goes to standard output, with what pgtail writes of it.
//
// Made to be fast as well as right: read and written in large pieces, what belongs to a transaction is made once for
// each, and timestamps, dates and bytea stay the server's text (the package's own Date objects lose microseconds, and a
// Buffer is a slow and bulky thing in JSON). All other types have the package's own parsers.
import { openSync, readSync, writeSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'

const [, , modules, input] = process.argv
const require = createRequire(join(resolve(modules), 'package.json'))
const { PgoutputPlugin } = require('pg-logical-replication')
const { types } = require('pg')

const BUFFER = 1 << 20 // far above the workload's largest frame and line
const WRITE_AT_ONCE = 1 << 14
const STDOUT = 1
const XLOGDATA = 0x77
const HEADER = 25
const { BYTEA, DATE, TIMESTAMP, TIMESTAMPTZ } = types.builtins

for (const type of [BYTEA, DATE, TIMESTAMP, TIMESTAMPTZ]) types.setTypeParser(type, (text) => text)

const plugin = new PgoutputPlugin({ protoVersion: 1, publicationNames: ['pub'] })
const source = openSync(input, 'r')

let xid, commitLsn, commitTime, seq
let text = ''
const bytes = Buffer.allocUnsafe(BUFFER)

function flush() {
  const size = bytes.write(text)
  for (let done = 0; done < size; ) done += writeSync(STDOUT, bytes, done, size - done)
  text = ''
}

function lsnOf(frame) {
  return frame.readUInt32BE(1).toString(16).toUpperCase() + '/' + frame.readUInt32BE(5).toString(16).toUpperCase()
}

// The package's time is a BigInt of microseconds since 1970.
function timeOf(micros) {
  const fraction = String(micros % 1000000n).padStart(6, '0')
  return new Date(Number(micros / 1000n)).toISOString().slice(0, 20) + fraction + 'Z'
}

function take(frame) {
  const message = plugin.parse(frame.subarray(HEADER))
  switch (message.tag) {
    case 'begin':
      xid = message.xid
      commitLsn = message.commitLsn
      commitTime = timeOf(message.commitTime)
      seq = 0
      break
    case 'insert':
    case 'update':
    case 'delete': {
      const { schema, name, replicaIdentity, keyColumns } = message.relation
      const change = {
        op: message.tag,
        schema,
        table: name,
        xid,
        seq: ++seq,
        commit_lsn: commitLsn,
        commit_ts: commitTime,
        lsn: lsnOf(frame),
      }
      if (message.tag !== 'insert') change.identity = replicaIdentity
      change.key = keyColumns
      change.old = message.old ?? message.key ?? undefined
      change.new = message.new
      text += JSON.stringify(change) + '\n'
      if (text.length > WRITE_AT_ONCE) flush()
    }
  }
}

const read = Buffer.allocUnsafe(BUFFER)
let kept = 0
for (;;) {
  const size = readSync(source, read, kept, read.length - kept)
  if (size === 0) break
  const end = kept + size
  let position = 0
  while (position + 4 <= end) {
    const next = position + 4 + read.readUInt32BE(position)
    if (next > end) break
    if (read[position + 4] === XLOGDATA) take(read.subarray(position + 4, next))
    position = next
  }
  read.copy(read, 0, position, end)
  kept = end - position
}
flush()
if (kept) throw new Error(`${input} ends in the middle of a frame, or one is larger than ${BUFFER} bytes`)
