"""The work of the commands, a folder or a file for each. Knows no click: options arrive as the records of `options/`.

What commands share: `input/` is what they read, `output/` where their changes go, `console/` what a terminal shows
beside that, `service/` how a command that runs for years says how it is, `parallel/` the processes of decode.
"""
