"""Which files a dataset on disk consists of: a Parquet file, a folder of them, what `datasets` saved."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from evalfleet.errors import DefinitionError, Problem

SPLITS_FILE = "dataset_dict.json"
STATE_FILE = "state.json"

M = TypeVar("M", bound=BaseModel)

_SUFFIXES = (".parquet", ".arrow")
_SHARD = re.compile(r"(?P<name>.+?)(?:-\d+-of-\d+(?:-[0-9a-f]+)?)?$")


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files that hold the rows, in their order, and those that say so."""

    rows: tuple[Path, ...]
    described_by: tuple[Path, ...] = ()


class _Splits(BaseModel):
    model_config = ConfigDict(strict=True)

    splits: list[str]


class _DataFile(BaseModel):
    model_config = ConfigDict(strict=True)

    filename: str


class _State(BaseModel):
    """What `save_to_disk` writes beside the rows; the rest of it concerns `datasets` alone."""

    model_config = ConfigDict(strict=True, alias_generator=lambda name: f"_{name}")

    data_files: list[_DataFile]
    split: str | None = None
    indices_data_files: list[_DataFile] | None = None
    indices_files: list[_DataFile] | None = None


def parquet_files(path: Path) -> DataFiles:
    """The file, or the Parquet files of a folder by name. Raises DefinitionError when there is none."""
    if not path.is_dir():
        return DataFiles((path,))
    files = _files_in(path.glob("*.parquet"), path)
    if not files:
        _refuse(path, "the folder holds no *.parquet file")
    return DataFiles(files)


def huggingface_files(path: Path, split: str | None) -> DataFiles:
    """The files of one split. Raises DefinitionError when it is not there, or when several are and none is named."""
    if not path.is_dir():
        hint = "download it first: hf download … --local-dir, or save_to_disk of the datasets package"
        _refuse(path, "there is no such folder; datasets are read from disk", hint)
    if (path / SPLITS_FILE).is_file():
        names = _read(path / SPLITS_FILE, _Splits).splits
        found = _saved(path / _chosen(path, names, split), None)
        return DataFiles(found.rows, (path / SPLITS_FILE, *found.described_by))
    if (path / STATE_FILE).is_file():
        return _saved(path, split)
    return DataFiles(_by_name(path, split))


def _saved(folder: Path, split: str | None) -> DataFiles:
    state = _read(folder / STATE_FILE, _State)
    if split is not None and split != state.split:
        known = f"from the split {state.split!r}" if state.split else "without the name of a split"
        _refuse(folder, f"the dataset was saved {known}, not from {split!r}", "leave split= out")
    if state.indices_data_files or state.indices_files:
        _refuse(folder, "its rows are chosen by an index of an old version of datasets: load it and save it again")
    files = [folder / each.filename for each in state.data_files]
    if outside := next((file for file in files if file.parent != folder), None):
        _refuse(folder / STATE_FILE, f"it names {outside.name!r}, which lies elsewhere")
    return DataFiles(tuple(files), (folder / STATE_FILE,))


def _by_name(path: Path, split: str | None) -> tuple[Path, ...]:
    """Files as the Hub lays them out: `train-00000-of-00002.parquet`, `train.parquet` or `train/….parquet`."""
    files = _files_in((file for suffix in _SUFFIXES for file in path.rglob(f"*{suffix}")), path)
    if not files:
        _refuse(path, f"the folder holds no {STATE_FILE}, and no Parquet or Arrow file")
    splits: dict[str, list[Path]] = {}
    for file in files:
        splits.setdefault(_split_of(file, path), []).append(file)
    return tuple(splits[_chosen(path, list(splits), split)])


def _split_of(file: Path, root: Path) -> str:
    """The folder's name, but for folders that say nothing; else the file's name without the number of the shard."""
    folder = file.parent
    if folder != root and folder.name != "data":
        return folder.name
    match = _SHARD.match(file.stem)
    return match["name"] if match else file.stem


def _chosen(path: Path, names: list[str], split: str | None) -> str:
    listed = ", ".join(names)
    if split is None and len(names) != 1:
        _refuse(path, f"the dataset has several splits: {listed}", f'say which: split="{names[0]}"' if names else None)
    if split is not None and split not in names:
        _refuse(path, f"the dataset has no split {split!r}: it has {listed}")
    return names[0] if split is None else split


def _files_in(found: Iterable[Path], root: Path) -> tuple[Path, ...]:
    """Sorted, without hidden files and those that writers of tables hide by an underscore."""
    visible = (file for file in found if not any(part[0] in "._" for part in file.relative_to(root).parts))
    return tuple(sorted(visible, key=lambda file: file.relative_to(root).as_posix()))


def _read(file: Path, model: type[M]) -> M:
    try:
        return model.model_validate_json(file.read_bytes())
    except OSError as error:
        _refuse(file, f"the file can't be read: {error.strerror}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        _refuse(file, f"the file is not what datasets writes: {place}: {first['msg']}")


def _refuse(path: Path, message: str, hint: str | None = None) -> NoReturn:
    raise DefinitionError("INVALID_TABLE", [Problem("INVALID_TABLE", message, str(path), hint=hint)])
