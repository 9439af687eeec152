"""Checks evidence of an event with the public key of its log: python3 checkevidence.py evidence.json KEY"""
import base64, hashlib, json, sys

P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493  # Ed25519 (RFC 8032)
D = -121665 * pow(121666, -1, P) % P
def add(a, b):
    t = D * a[0] * b[0] * a[1] * b[1]
    return (a[0] * b[1] + b[0] * a[1]) * pow(1 + t, -1, P) % P, (a[1] * b[1] + a[0] * b[0]) * pow(1 - t, -1, P) % P

def multiply(n, point):
    result = 0, 1
    while n:
        result, point, n = add(result, point) if n & 1 else result, add(point, point), n >> 1
    return result

def decode(point):
    y = int.from_bytes(point, "little") & 2**255 - 1
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
    require(x * x % P == square, "not a point of the curve")
    return x if x & 1 == point[31] >> 7 else P - x, y

def signed(key, message, signature):
    s, h = int.from_bytes(signature[32:], "little"), hashlib.sha512(signature[:32] + key + message).digest()
    base = decode((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    return s < L and multiply(s, base) == add(decode(signature[:32]), multiply(int.from_bytes(h, "little"), decode(key)))

def require(holds, otherwise):
    if not holds: sys.exit(otherwise)

def sha256(*parts): return hashlib.sha256(b"".join(parts)).digest()

def root_of(leaf, index, size, path):  # RFC 9162, section 2.1.3.2
    node, last = sha256(b"\0", leaf), size - 1
    for sibling in path:
        if index & 1 or index == last:
            node = sha256(b"\1", sibling, node)
            while index and not index & 1: index, last = index >> 1, last >> 1
        else:
            node = sha256(b"\1", node, sibling)
        index, last = index >> 1, last >> 1
    return node if last == 0 else None

class Number(str): pass  # as it is written

def unique(members):
    require(len(dict(members)) == len(members), "a member is there twice")
    return dict(members)

def parse(text): return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=unique)

def canonical(value):  # RFC 8785, but for numbers
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(canonical(name) + ":" + canonical(value[name]) for name in names) + "}"
    if isinstance(value, list): return "[" + ",".join(map(canonical, value)) + "]"
    return value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)

evidence, (name, _, key) = parse(open(sys.argv[1], encoding="utf-8").read()), sys.argv[2].split("+", 2)
evidence, key = evidence.get("data", evidence), base64.b64decode(key)
head, checkpoint = evidence["receipt"].split("\n\n", 1)  # c2sp.org/tlog-proof
_, extra, index, *path = head.split("\n")
leaf, path = base64.b64decode(extra[6:]), [base64.b64decode(line) for line in path]
text, signatures = checkpoint.split("\n\n", 1)  # c2sp.org/signed-note
origin, size, root = text.split("\n")[:3]
lines = [line.split(" ") for line in signatures.splitlines()]
own = [base64.b64decode(line[2]) for line in lines if line[1] == name]
require(origin == name and any(signed(key[1:], text.encode() + b"\n", s[4:]) for s in own), "not signed by this key")
require(root_of(leaf, int(index[6:]), int(size), path) == base64.b64decode(root), "the tree does not have the event")
event, leaf, stored = evidence["event"], parse(leaf), base64.b64decode(evidence["opening"]["stored"])
require(sha256(stored).hex() == leaf["stored"], "stored is not what the tree has")
require("stream" not in event, "the member stream was added")
metadata, event["stream"] = parse(stored.split(b"\n")[0]), leaf["stream"]
same = all(event[member] == leaf[member] for member in ("id", "revision", "at")) and leaf["type"].startswith(event["type"] + ".v")
require(same and event["actor"] == metadata["actor"], "another event than the tree has")
covered = {member: value for member, value in event.items() if member not in ("position", "requestId")}
commitment = sha256(bytes.fromhex(evidence["opening"]["nonce"]), canonical(covered).encode()).hex()
require(commitment == metadata["commitment"], "the content is not what the log committed to")
print("event", event["id"], "was captured so: on the log", name)
