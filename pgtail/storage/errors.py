"""Errors of a storage as pgtail's own: short, and without credentials."""

from __future__ import annotations

import os
import re
from typing import Final

from pgtail.errors import InputError, OutputError
from pgtail.storage.options import StorageOptions


class Conflict(OutputError):
    """A conditional put found another file or version."""


class UnavailableInput(InputError):
    """Reading failed for a reason that may pass."""


class UnavailableOutput(OutputError):
    """Writing failed for a reason that may pass."""


UNAVAILABLE: Final = (UnavailableInput, UnavailableOutput)

_XML: Final = re.compile(r"<Code>([^<]{1,80})</Code>(?:\s*<Message>([^<\n]{1,300}))?")
_OAUTH: Final = re.compile(r'"error(?:_description)?":\s*"([^"\n]{1,200})"')
_STATUS: Final = re.compile(r"status code:?\s+(\d{3}[^:\n]{0,60})")
_SYSTEM: Final = re.compile(r'message: "([^"\n]{1,120})"')
_ARROW: Final = re.compile("\x1b\\[31m↳\x1b\\[0m ?")
"""Before each line but the first one of deltalake's errors: the last line names the cause."""
_GENERIC: Final = re.compile(r"Generic \w+ error: ")
_NO_ACCOUNT: Final = "Account must be specified"
_QUERY: Final = re.compile(r"(https?://[^\s?]*)\?\S*")
_USER: Final = re.compile(r"//[^/\s@]*@")
_NO_CREDENTIALS: Final = re.compile(r"169\.254\.\d|metadata\.google\.internal|MetadataServer|Metadata token")
_TRIED_AGAIN: Final = ("408", "409", "429")
_SECRET: Final = re.compile("key|secret|token|password|sas|credential", re.IGNORECASE)
_PATH: Final = re.compile("application_credentials$|_file$", re.IGNORECASE)
"""Names of options and variables whose value is the path of a file with a secret."""
_SHORTEST: Final = 6
"""Characters that a secret in the environment has at least: shorter ones are ordinary words."""

_CLASSES: Final = {
    "PermissionDeniedError": "permission denied",
    "UnauthenticatedError": "the credentials are not accepted",
    "NotSupportedError": "the storage does not support this operation",
    "FileNotFoundError": "it does not exist",
}


def reason_of(error: BaseException, options: StorageOptions) -> tuple[str, bool]:
    """Why a library of a storage failed, in one line without credentials, and whether that may pass."""
    text, arrows = _ARROW.subn("", str(error))
    status = _STATUS.search(text)
    code = None if status is None else status[1][:3]
    kind = _CLASSES.get(type(error).__name__)
    passes = kind is None and (code is None or (code[0] == "5" and code != "501") or code in _TRIED_AGAIN)
    if _NO_CREDENTIALS.search(text):
        return (
            "no credentials were found: set them in the environment, as for the cloud's own tools, or with --storage",
            False,
        )
    if "builder error" in text:
        return "its address cannot be used; http:// needs the option allow_http=true", False
    said = _said(text, last=bool(arrows))
    return _clean(f"{kind} ({said})" if kind and said else kind or said, options), passes


def _said(text: str, *, last: bool) -> str:
    """The part of a library's error that says most: what the server said, else the first or the `last` line."""
    if (xml := _XML.search(text)) is not None:
        return " ".join(part.strip() for part in xml.groups() if part)
    if (oauth := _OAUTH.search(text)) is not None:
        return oauth[1]
    if (status := _STATUS.search(text)) is not None:
        return status[1].strip()
    if "TimedOut" in text or "kind: Timeout" in text:
        return "the server does not answer"
    if (system := _SYSTEM.search(text)) is not None:
        return system[1]
    lines = [line.strip() for line in text.strip().splitlines()] or [""]
    return lines[-1 if last else 0]


def refusal_of(error: BaseException, options: StorageOptions) -> str:
    """Why a library of a storage refused the options before it asked the server, in one line without credentials."""
    text = _GENERIC.sub("", str(error).partition("\n")[0])
    if text == _NO_ACCOUNT:
        return "no account is named: set AZURE_STORAGE_ACCOUNT_NAME, or --storage azure_storage_account_name=NAME"
    return _clean(text, options)


def _clean(text: str, options: StorageOptions) -> str:
    """Remove what may be a credential: options, variables of the environment, and parts of URLs."""
    text = _USER.sub("//", _QUERY.sub(r"\1", text))
    named = [*options.pairs, *((name, value) for name, value in os.environ.items() if len(value) >= _SHORTEST)]
    secrets = [value for name, value in named if _SECRET.search(name) and not _PATH.search(name)]
    for value in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(value, "***")
    return text


def reading_failed(error: BaseException, source: str, options: StorageOptions) -> InputError:
    """The error for something that cannot be read."""
    reason, passes = reason_of(error, options)
    return (UnavailableInput if passes else InputError)(f"cannot be read: {reason}", source=source)


def writing_failed(error: BaseException, target: str, options: StorageOptions) -> OutputError:
    """The error for something that cannot be written."""
    reason, passes = reason_of(error, options)
    return (UnavailableOutput if passes else OutputError)(f"cannot write {target}: {reason}")
