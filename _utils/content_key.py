"""Keys of cached files: a hash of everything that their content depends on."""
import xxhash


def content_key(made_of, chunks=()):
    """Hash (xxh3, 128 bits, hexadecimal) of `repr(made_of)` followed by the bytes-like `chunks`.

    A cached file named with this key cannot be stale: whatever changes its content changes its name.
    """
    digest = xxhash.xxh3_128(repr(made_of).encode())
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def file_chunks(path):
    """Yield the content of a file in blocks of a megabyte."""
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            yield chunk
