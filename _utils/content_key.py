"""Keys of cached files: a hash of everything that their content depends on."""
import xxhash


def content_key(made_of, chunks=()):
    """Hash (xxh3, 128 bits, hexadecimal) of the repr of `made_of` and of the bytes-like `chunks` that follow it.

    A cached file named with this key can never be stale: whatever changes its content changes its name.
    """
    digest = xxhash.xxh3_128(repr(made_of).encode())
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
