"""`sign` and `verify --key`: an Ed25519 signature over the boards and the trust root they rest on."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explainbench.core.errors import BadInput, Corrupt
from explainbench.core.files import read_json, write_json
from explainbench.core.provenance import canonical_json, sha256_file
from explainbench.core.workspace import Workspace

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

NAME = "boards.sig.json"
SCHEMA = 1
SIGNED = (".json", ".csv", ".md")
MAKE_KEY = (
    "`openssl genpkey -algorithm ed25519 -out key.pem` makes one, `openssl pkey -in key.pem -pubout` its public half"
)


def statement(workspace: Workspace) -> dict[str, Any]:
    """What is signed: SHA-256 of cells.lock.json, data.manifest.json and every file of numbers or words in results/."""
    files = {path.name: path for path in (workspace.lock, workspace.root / "data.manifest.json")}
    for path in sorted(workspace.results.rglob("*")):
        if path.suffix in SIGNED:
            files[path.relative_to(workspace.results).as_posix()] = path
    digests = {name: sha256_file(path) for name, path in files.items() if path.is_file() and name != NAME}
    if workspace.lock.name not in digests:
        raise BadInput(f"{workspace.lock} does not exist; there is nothing to sign. Run `explainbench evaluate` first.")
    return {"schema": SCHEMA, "files": digests}


def sign(workspace: Workspace, key: Path) -> Path:
    """Sign the present boards with a private key (PEM, not encrypted); the file written, results/boards.sig.json."""
    private = _private(key)
    what = statement(workspace)
    document = {
        "algorithm": "ed25519",
        "public_key": base64.b64encode(private.public_key().public_bytes_raw()).decode(),
        "statement": what,
        "signature": base64.b64encode(private.sign(canonical_json(what))).decode(),
    }
    path = workspace.results / NAME
    write_json(path, document)
    return path


def signature_problems(workspace: Workspace, key: Path) -> list[str]:
    """Check the signature with a public key (PEM) and every file under it: the problems, each in a sentence.

    Raises BadInput when there is no signature or no such key, Corrupt when the signature's file is not one.
    """
    from cryptography.exceptions import InvalidSignature

    public = _public(key)
    path = workspace.results / NAME
    document = read_json(path)
    try:
        what, signature = document["statement"], base64.b64decode(document["signature"], validate=True)
        files = dict(what["files"])
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"{path} is no signature of `explainbench sign` ({error}); get it from the publisher.") from error
    try:
        public.verify(signature, canonical_json(what))
    except InvalidSignature:
        return [f"{path.name} was not signed with the private half of {key}, or was altered after it was signed"]
    now = statement(workspace)["files"]
    problems = []
    for name in sorted(files.keys() | now.keys()):
        expected, found = files.get(name, "not signed"), now.get(name, "missing")
        if expected != found:
            problems.append(f"{name}: signed with SHA-256 {expected[:16]}, found {found[:16]}")
    return problems


def _private(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path} is no private key in PEM without a password ({error}); {MAKE_KEY}.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BadInput(f"{path} is a key of another kind than Ed25519; {MAKE_KEY}.")
    return key


def _public(path: Path) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_read(path))
    except ValueError as error:
        raise BadInput(f"{path} is no public key in PEM ({error}); {MAKE_KEY}.") from error
    if not isinstance(key, Ed25519PublicKey):
        raise BadInput(f"{path} is a key of another kind than Ed25519; {MAKE_KEY}.")
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); {MAKE_KEY}.") from error
