"""What the Hub's stand-in (`tests/web.py`) does with uploads: repositories made, files announced, objects of Git LFS taken, commits."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from tests.web import Asked, Hub

INITIAL = {".gitattributes": b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"}


def created(hub: Hub, asked: Asked) -> tuple[Any, int]:
    """`POST /api/repos/create`: (answer, status)."""
    wanted = json.loads(asked.body)
    name = f"{wanted['organization']}/{wanted['name']}"
    url = {"url": f"{hub.url}/datasets/{name}", "name": name}
    if asked.headers.get("authorization") != f"Bearer {hub.token}":
        return {"error": "Invalid credentials"}, 401
    if name in hub.repos:
        return {"error": "You already created this dataset repo", **url}, 409
    assert wanted["type"] == "dataset"
    hub.repo(name, INITIAL, private=wanted["visibility"] == "private")
    return url, 200


def validated(asked: Asked) -> tuple[Any, int]:
    """`POST /api/validate-yaml`, the head of a card: (answer, status)."""
    from ruamel.yaml import YAML, YAMLError

    content = json.loads(asked.body)["content"]
    if not content.startswith("---\n"):
        return {"errors": [], "warnings": [{"message": "empty or missing yaml metadata in repo card"}]}, 200
    try:
        YAML(typ="safe").load(content.split("---\n")[1])
    except YAMLError as error:
        return {"errors": [{"message": str(error).splitlines()[0]}], "warnings": []}, 400
    return {"errors": [], "warnings": []}, 200


def uploaded(hub: Hub, name: str, verb: str, asked: Asked) -> tuple[Any, int]:
    """`preupload`, `info/lfs/objects/batch` and `commit` of a data set."""
    from tests.web import git_oid, is_lfs

    if asked.headers.get("authorization") != f"Bearer {hub.token}":
        return {"error": "Forbidden"}, 403
    repo = hub.repos[name]
    files = dict(repo.commits[repo.refs["main"]])
    if verb == "preupload":
        announced = json.loads(asked.body)["files"]
        return {
            "files": [
                {
                    "path": file["path"], "shouldIgnore": False,
                    "uploadMode": "lfs" if is_lfs(file["path"], bytes(file["size"])) else "regular",
                    "oid": git_oid(files[file["path"]]) if file["path"] in files else None,
                }
                for file in announced
            ]
        }, 200  # fmt: skip
    if verb == "batch":
        objects = []
        for one in json.loads(asked.body)["objects"]:
            href = f"{hub.cdn.url}/upload/{one['oid']}?Signature=abc"
            there = {} if one["oid"] in hub.blobs else {"actions": {"upload": {"href": href}}}
            objects.append({**one, **there})
        return {"transfer": "basic", "objects": objects}, 200
    for line in asked.body.splitlines():
        item = json.loads(line)
        key, value = item["key"], item["value"]
        if key == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif key == "lfsFile":
            files[value["path"]] = hub.blobs[value["oid"]]
            assert len(files[value["path"]]) == value["size"]
        elif key == "deletedFile":
            del files[value["path"]]
        else:
            assert key == "header", key
    commit = repo.commit(files)
    return {
        "success": True,
        "commitUrl": f"{hub.url}/datasets/{name}/commit/{commit}",
        "commitOid": commit,
    }, 200


def stored(hub: Hub, asked: Asked) -> int:
    """`PUT` of an object of Git LFS to the CDN; the status. It must be what its name says."""
    oid = unquote(urlsplit(asked.path).path).rpartition("/")[2]
    if hashlib.sha256(asked.body).hexdigest() != oid:
        return 400
    hub.blobs[oid] = asked.body
    return 200
