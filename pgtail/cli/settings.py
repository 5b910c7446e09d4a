"""Defaults of options from PGTAIL_* variables and a config file.

A flag overrides a variable, a variable the file. --redact is the exception: each of the three adds to it, so that no
flag undoes the masks of a configuration.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from pgtail.cli.command import GroupedOption, cure_of_removed
from pgtail.commands.console.messages import messages
from pgtail.commands.options.common import FilterOptions
from pgtail.errors import COMMAND
from pgtail.files.small import read_small
from pgtail.humanize import did_you_mean
from pgtail.local_time import use_zone
from pgtail.options import MOST_DIGITS, SettingKind, options_of
from pgtail.outputs import OutputOptions
from pgtail.replication.request import Request
from pgtail.terminal.escape import escape, shell_word

SETTINGS: Final[dict[str, SettingKind]] = {
    "dsn": "text",
    "timezone": "text",
    **{
        declared.long_name.removeprefix("--"): declared.setting
        for cls in (Request, FilterOptions, OutputOptions)
        for _, declared in options_of(cls)
        if declared.setting is not None
    },
}
"""How the config file has each setting: the long name of an option; or dsn, an argument; or timezone, for --utc."""

ADDED: Final = frozenset(("redact",))
"""Settings that flags add to instead of overriding."""

_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_PASSWORD: Final = re.compile(r"://[^/@]*:[^/]*@|password\s*=", re.IGNORECASE)
"""A connection string that has one."""
_META: Final = "pgtail.settings"


class SettingError(click.ClickException):
    """A setting that cannot be used: names its variable or file, and what is expected."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        with messages() as logger:
            logger.error(escape(self.message))


class Setting(NamedTuple):
    """A value for an option, and the name of the file or variable that it comes from."""

    value: str | bool | int | list[str]
    origin: str


class Configured(GroupedOption):
    """An option whose default is the setting of the same long name, if there is one."""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        return _value_or_setting(self, ctx, *super().consume_value(ctx, opts))

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        return _cast(self, ctx, value, super().type_cast_value)


class ConfiguredArgument(click.Argument):
    """An argument whose default is the setting of the same name, if there is one."""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        return _value_or_setting(self, ctx, *super().consume_value(ctx, opts))


def key_of(parameter: click.Parameter) -> str:
    """The name of the setting for a parameter."""
    return max(parameter.opts, key=len).lstrip("-")


def _value_or_setting(
    parameter: click.Parameter, ctx: click.Context, value: Any, source: ParameterSource
) -> tuple[Any, ParameterSource]:
    """The value on the command line, else the setting; for ADDED both."""
    given = source is not ParameterSource.DEFAULT
    if ctx.resilient_parsing or (given and key_of(parameter) not in ADDED):
        return value, source
    configured = settings(ctx).get(key_of(parameter))
    if configured is None:
        return value, source
    _check_private(key_of(parameter), configured)
    setting = str(configured.value) if type(configured.value) is int else configured.value
    if given:
        return [*value, *configured.value] if isinstance(configured.value, list) else value, source
    return setting, ParameterSource.DEFAULT_MAP


def _cast(parameter: click.Parameter, ctx: click.Context, value: Any, cast: Any) -> Any:
    """The value converted to the option's type; the error for a wrong setting names its origin."""
    try:
        return cast(ctx, value)
    except click.BadParameter as error:
        found = settings(ctx).get(key_of(parameter))
        if found is None or ctx.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT_MAP:
            raise
        raise SettingError(f"{_place(found.origin, key_of(parameter))}: {error.message}") from None


def settings(ctx: click.Context) -> dict[str, Setting]:
    """All settings in force, in the order of SETTINGS; read once per run. Raises SettingError."""
    meta = ctx.find_root().meta
    if _META not in meta:
        meta[_META] = load(os.environ)
    found: dict[str, Setting] = meta[_META]
    return found


def given(name: str) -> bool:
    """Whether a parameter of the running command is on its command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def select_zone(ctx: click.Context, param: click.Parameter, utc: bool) -> bool:
    """The callback of --utc: local time is UTC, or that of the setting timezone. Raises SettingError."""
    if ctx.resilient_parsing:
        return utc
    setting = None if utc else settings(ctx).get("timezone")
    if utc or setting is not None:
        try:
            use_zone("UTC" if setting is None else str(setting.value))
        except ValueError as error:
            assert setting is not None
            raise SettingError(f"{_place(setting.origin, 'timezone')}: {error}") from None
    return utc


def default_dsn() -> str | None:
    """The configured dsn, for a command whose argument may also be a file."""
    found = settings(click.get_current_context()).get("dsn")
    if found is None:
        return None
    _check_private("dsn", found)
    return str(found.value)


def _check_private(key: str, setting: Setting) -> None:
    """Warn of a file that has a password and that other users can read, as libpq does of ~/.pgpass."""
    if key != "dsn" or setting.origin == variable(key) or not _PASSWORD.search(str(setting.value)):
        return
    try:
        mode = os.stat(setting.origin).st_mode
    except OSError:  # it was read before
        return
    if mode & 0o077 and stat.S_ISREG(mode):
        with messages() as logger:
            logger.warning(
                f"{escape(setting.origin)} has a password, and other users may read it (mode {mode & 0o777:04o}):"
                f"{COMMAND}chmod 600 {shell_word(setting.origin)}"
            )


def always_redacted() -> tuple[str, ...]:
    """The columns that the configuration masks in every command."""
    found = settings(click.get_current_context()).get("redact")
    return tuple(_list(found.value)) if found else ()


def refuse_masks(what: str) -> None:
    """Raises SettingError if a setting masks values, which `what` cannot do."""
    found = settings(click.get_current_context()).get("redact")
    if found is not None:
        raise SettingError(
            f"{_place(found.origin, 'redact')}: {what} cannot mask values; to write them unmasked, unset"
            " PGTAIL_REDACT and set PGTAIL_CONFIG to nothing or to another file"
        )


def settings_in_use() -> str | None:
    """The settings that the running command uses and their origins, for a message; None if it uses none."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return None
    parameters = {key_of(one): one for one in ctx.command.params if isinstance(one, Configured | ConfiguredArgument)}
    used: dict[str, list[str]] = {}
    for key, found in settings(ctx).items() if parameters else ():
        source = ctx.get_parameter_source(parameters[key].name or "") if key in parameters else None
        zone = key == "timezone" and ctx.params.get("utc") is False
        if zone or source is ParameterSource.DEFAULT_MAP or (source is not None and key in ADDED):
            used.setdefault(found.origin, []).append(key)
    return "; ".join([f"{', '.join(keys)} from {origin}" for origin, keys in used.items()]) or None


def load(environment: Mapping[str, str]) -> dict[str, Setting]:
    """The settings of the file, overridden by those of the environment. Raises SettingError."""
    path = config_file(environment)
    file = {} if path is None else _from_file(path)
    variables = {
        key: _from_variable(key, kind, environment[variable(key)])
        for key, kind in SETTINGS.items()
        if environment.get(variable(key))
    }
    found = file | variables
    for key in ADDED & file.keys() & variables.keys():
        both = [*_list(file[key].value), *_list(variables[key].value)]
        found[key] = Setting(both, f"{file[key].origin}, {variables[key].origin}")
    return {key: found[key] for key in SETTINGS if key in found}


def variable(key: str) -> str:
    """The environment variable for a setting."""
    return f"PGTAIL_{key.upper().replace('-', '_')}"


def config_file(environment: Mapping[str, str]) -> str | None:
    """The config file, None if there is none; PGTAIL_CONFIG names it (empty: none). Raises SettingError."""
    named = environment.get("PGTAIL_CONFIG")
    if named is not None:
        if named and not os.path.lexists(named):
            raise SettingError(f"PGTAIL_CONFIG: there is no file {named}")
        return named or None
    path = default_file(environment)
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # the file may exist, and its masks must not be ignored
        raise SettingError(f"{path}: {error.strerror}") from None
    return path


def default_file(environment: Mapping[str, str]) -> str:
    """The default path of the config file, as in the XDG Base Directory Specification."""
    home = environment.get("XDG_CONFIG_HOME", "")
    return os.path.join(home if home.startswith("/") else os.path.expanduser("~/.config"), "pgtail", "config.toml")


def unset(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without settings, for a command to which they must not apply."""
    ours = {variable(key) for key in SETTINGS}
    return {name: value for name, value in environment.items() if name not in ours} | {"PGTAIL_CONFIG": ""}


def _from_file(path: str) -> dict[str, Setting]:
    import tomllib

    try:
        entries = tomllib.loads(read_small(path).decode())
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingError(f"{path}: this is not TOML: it is not in UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{path}: {error}") from None
    for key in entries:
        if key not in SETTINGS:
            if (cure := cure_of_removed(f"--{key}")) is not None:
                raise SettingError(f"{path}: {key} was removed: {cure}")
            meant = did_you_mean(key, SETTINGS) or f"; there are {', '.join(SETTINGS)}"
            raise SettingError(f"{path}: unknown key {key}{meant}")
    return {key: Setting(_checked(path, key, SETTINGS[key], entries[key]), path) for key in entries}


def _checked(path: str, key: str, kind: SettingKind, value: Any) -> str | bool | int | list[str]:
    """A value of the file, if it has the type of its key; a string is also a list of one. Raises SettingError."""
    if kind == "flag" and isinstance(value, bool):
        return value
    if kind == "number" and type(value) is int and value >= 0:
        return value
    if kind == "text" and isinstance(value, str):
        return value
    if kind in ("list", "one by one"):
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return items
    expected = {"flag": "true or false", "number": "a non-negative integer", "text": "a string"}
    what = expected.get(kind, "a string or a list of strings")
    raise SettingError(f"{_place(path, key)}: expected {what}")


def _from_variable(key: str, kind: SettingKind, text: str) -> Setting:
    origin = variable(key)
    if kind == "flag":
        if text.lower() not in (*_YES, *_NO):
            raise SettingError(f"{origin}: expected 1 or 0, true or false, yes or no, on or off")
        return Setting(text.lower() in _YES, origin)
    if kind == "number":
        if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
            raise SettingError(f"{origin}: expected a non-negative integer")
        return Setting(int(text), origin)
    if kind == "list" and key != "redact":  # redact has its own syntax for commas and quotes
        return Setting([item.strip() for item in text.split(",") if item.strip()], origin)
    return Setting(text if kind == "text" else [text], origin)


def _list(value: object) -> list[str]:
    return value if isinstance(value, list) else []


def _place(origin: str, key: str) -> str:
    return origin if origin.startswith("PGTAIL_") else f"{origin}: {key}"
