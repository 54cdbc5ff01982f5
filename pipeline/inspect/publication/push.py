"""A publication uploaded to a data set repository of the Hugging Face Hub: `huggingface_hub`, at `HF_ENDPOINT`, with the token in `HF_TOKEN`
alone. Files that are no part of the publication are deleted there; `publication.json` comes last, in a commit of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import masked
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.owner import OWNER
from corpusmill.pipeline.inspect.publication.check import check, parse_sums
from corpusmill.schemas.publication import PUBLICATION, SUMS

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TOKEN = "HF_TOKEN"
KIND = "dataset"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_ALWAYS = (".gitattributes",)  # the Hub's own


def check_push(dest: Folder, repository: str) -> None:
    """Raise `UserError` for what can be known before a publication is made: the name, the token, a local folder."""
    if not _REPOSITORY.fullmatch(repository):
        raise UserError(f"--push {repository}: must be OWNER/NAME, such as my-lab/my-corpus")
    if not dest.local:
        raise UserError(
            f"--push {repository}: {dest} is no local folder, from which uploads are made; publish into one"
        )
    if not os.environ.get(TOKEN, "").strip():
        raise UserError(
            f"--push {repository}: the environment variable {TOKEN} is empty; set it to a token that may write there"
        )


def push(dest: Folder, repository: str, public: bool, log: Callable[[str], None]) -> str:
    """Upload the publication in a local folder; the URL of the repository, which is created, private unless `public`, if there is none.

    Raises `UserError` where the Hub refuses, `WorkError` if the folder holds anything but the publication as it was made, or the Hub
    fails, or does not hold the same files afterwards.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    check_push(dest, repository)
    _require_whole(dest, repository)
    endpoint = os.environ.get("HF_ENDPOINT") or None
    api = HfApi(endpoint=endpoint, token=os.environ[TOKEN].strip(), library_name="corpusmill")
    try:
        url = str(api.create_repo(repository, repo_type=KIND, private=not public, exist_ok=True))
        if not public and not api.dataset_info(repository).private:
            raise UserError(f"--push {repository}: is public already; give --public if that is meant")
        _upload(api, dest, repository)
        _compare(api, dest, repository)
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        if status in (401, 403, 404):
            raise UserError(
                f"--push {repository}: the Hub refuses (HTTP {status}): the token in {TOKEN} may not write there"
            ) from None
        raise WorkError(
            f"--push {repository}: the Hub answers HTTP {status}; give the same command again"
        ) from None
    except (UserError, WorkError):
        raise
    except ValueError as error:  # of the card's head
        raise WorkError(f"--push {repository}: {masked(' '.join(str(error).split()))}") from None
    except Exception as error:  # of whatever its client raises; messages may hold signed addresses
        raise WorkError(f"--push {repository}: {type(error).__name__}; give the same command again") from None
    log(f"{repository}: pushed, the files there equal those of {dest}")
    return url


def _require_whole(dest: Folder, repository: str) -> None:
    """Raise `WorkError` for a file that was changed since, or came from elsewhere: it would go out."""
    found = check(dest)
    problems = [f"{dest}: no publication"] if found is None else found.problems
    if problems:
        raise WorkError(f"--push {repository}: {problems[0]}; nothing was uploaded")


def _upload(api: HfApi, dest: Folder, repository: str) -> None:
    """All files but the last, in as many commits as the library makes, then that one: without it nothing there is a publication."""
    there = set(api.list_repo_files(repository, repo_type=KIND))
    if PUBLICATION in there:  # of an earlier state, until the new one is whole
        api.delete_file(PUBLICATION, repository, repo_type=KIND, commit_message="Begin a new state")
    api.upload_folder(
        folder_path=dest.url, repo_id=repository, repo_type=KIND, commit_message="Publish",
        ignore_patterns=[OWNER, PUBLICATION], delete_patterns=["*"],
    )  # fmt: skip
    api.upload_file(
        path_or_fileobj=(dest / PUBLICATION).read(), path_in_repo=PUBLICATION, repo_id=repository, repo_type=KIND,
        commit_message="Publish: done",
    )  # fmt: skip


def _compare(api: HfApi, dest: Folder, repository: str) -> None:
    """Raise `WorkError` if the repository holds other files than the folder, by name, size and, where the Hub has it, SHA-256."""
    from huggingface_hub.hf_api import RepoFile

    sums = parse_sums((dest / SUMS).read())
    sizes = {entry.path: entry.size for entry in dest.list() if entry.path != OWNER}
    found = {
        entry.path: entry
        for entry in api.list_repo_tree(repository, repo_type=KIND, recursive=True)
        if isinstance(entry, RepoFile) and entry.path not in _ALWAYS
    }
    wrong = sorted(sizes.keys() ^ found.keys()) or [
        path
        for path, entry in sorted(found.items())
        if entry.size != sizes[path] or (entry.lfs and path in sums and entry.lfs.sha256 != sums[path])
    ]
    if wrong:
        raise WorkError(
            f"--push {repository}: {wrong[0]}: is not there as it is here; give the same command again"
        )
