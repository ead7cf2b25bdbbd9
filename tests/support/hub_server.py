"""A server on localhost that speaks the HTTP interface of the Hugging Face hub, for runs of the unchanged libraries.

It has repositories with commits, branches and tags, and answers as the hub does without a token: information on a
repository, lists of its files, and the files with ETag, commit and ranges. It can fail as the hub and networks do.
"""
import hashlib
import json
import re
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote

_FAULT_HEADERS = {401: {"X-Error-Code": "GatedRepo"}, 429: {"Retry-After": "0"}}
_ROUTES = {  # of quoted paths
    "info": r"/api/(datasets|models)/([^/]+/[^/]+)(?:/revision/([^/]+))?",
    "tree": r"/api/(datasets|models)/([^/]+/[^/]+)/tree/([^/]+)/?(.*)",
    "paths_info": r"/api/(datasets|models)/([^/]+/[^/]+)/paths-info/([^/]+)",
    "file": r"/(?:(datasets)/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)",
}


class HubServer(ThreadingHTTPServer):
    """`commit` adds files, `fail` lets the next requests fail, `requests` lists "METHOD path Range" of all so far."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories, self.faults, self.requests = {}, [], []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def commit(self, repository, files, *names):
        """Add a commit and return its hash.

        repository: such as 'datasets/nyu-mll/glue'.   files: {path: bytes}.
        names: branches and tags that now point to the commit; by default main.
        """
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        revisions = self.repositories.setdefault(repository, {})
        revisions |= dict.fromkeys((commit, *(names or ["main"])), (commit, files))
        return commit

    def fail(self, request, how, times=1):
        """Let requests fail. request: regular expression of "METHOD path".

        how: an HTTP status; 'reset', the connection breaks in the middle of the content; 'short', a part of the content
        is sent as if it were all.
        """
        self.faults += [(request, how)] * times

    def clear(self):
        """Forget everything."""
        for record in (self.repositories, self.faults, self.requests):
            record.clear()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log_message = lambda *_: None

    def do_GET(self):
        """Answer a request of any kind."""
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        path = self.path.partition("?")[0]
        request, faults = f"{self.command} {unquote(path)}", self.server.faults
        fault = next((fault for fault in faults if re.search(fault[0], request)), None)
        if fault:
            faults.remove(fault)
        self.fault = fault and fault[1]
        self.server.requests.append(f"{request} {self.headers.get('Range', '')}".strip())
        if isinstance(self.fault, int):
            self.send(self.fault, headers=_FAULT_HEADERS.get(self.fault, {}))
            return
        for name, route in _ROUTES.items():
            if found := re.fullmatch(route, path):
                getattr(self, name)(*(part and unquote(part) for part in found.groups()))
                return
        self.send(404)

    do_HEAD = do_POST = do_GET

    def revision(self, kind, repository, revision="main"):
        """(commit, files) of a revision; sends an error and returns (None, {}) if there is none."""
        revisions = self.server.repositories.get(f"{kind}/{repository}")
        if revisions is None:
            self.send(401, headers={"X-Error-Code": "RepoNotFound"})  # it might be a private one
        elif revision in revisions:
            return revisions[revision]
        else:
            self.send(404, headers={"X-Error-Code": "RevisionNotFound"})
        return None, {}

    def info(self, kind, repository, revision):
        commit, files = self.revision(kind, repository, revision or "main")
        if commit:
            siblings = [{"rfilename": path} for path in files]
            self.send_json({"id": repository, "sha": commit, "siblings": siblings, "tags": []})

    def tree(self, kind, repository, revision, folder):
        commit, files = self.revision(kind, repository, revision)
        if commit:
            entries = entries_of(files)
            within = [entry for path, entry in entries.items() if path.startswith(f"{folder}/" if folder else "")]
            if folder and folder not in entries:
                self.send(404, headers={"X-Error-Code": "EntryNotFound"})
            elif "recursive=true" in self.path.lower():
                self.send_json(within)
            else:
                self.send_json([entry for entry in within if entry["path"].rpartition("/")[0] == folder])

    def paths_info(self, kind, repository, revision):
        commit, files = self.revision(kind, repository, revision)
        if commit:
            entries = entries_of(files)
            self.send_json([entries[path] for path in parse_qs(self.body).get("paths", []) if path in entries])

    def file(self, kind, repository, revision, path):
        commit, files = self.revision(kind or "models", repository, revision)
        if commit and path not in files:
            self.send(404, headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        elif commit:
            self.send_content(files[path], {"X-Repo-Commit": commit})

    def send_json(self, value):
        self.send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def send_content(self, content, headers=()):
        headers = {"ETag": f'"{etag_of(content)}"', "Accept-Ranges": "bytes", **dict(headers)}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            self.send(200, content, headers)
            return
        start, end = int(wanted[1]), min(int(wanted[2] or len(content)) + 1, len(content))
        self.send(206, content[start:end], headers | {"Content-Range": f"bytes {start}-{end - 1}/{len(content)}"})

    def send(self, status, content=b"", headers=()):
        if self.fault == "short":
            content = content[:len(content) * 15 // 16]
        self.send_response(status)
        for name, value in {"Content-Length": len(content), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(content[:len(content) * 15 // 16] if self.fault == "reset" else content)
        if self.fault == "reset":
            time.sleep(.2)  # the client reads what it was sent
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()


def entries_of(files):
    """{path: entry in the lists of the hub} of files and their folders."""
    folders = {path[:i] for path in files for i, character in enumerate(path) if character == "/"}
    entries = {folder: {"type": "directory", "path": folder, "oid": "0" * 40, "size": 0} for folder in folders}
    for path, content in files.items():
        entries[path] = {"type": "file", "path": path, "oid": etag_of(content), "size": len(content)}
    return dict(sorted(entries.items()))


def etag_of(content):
    return hashlib.sha256(content).hexdigest()
