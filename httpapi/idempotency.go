package httpapi

import "net/http"

// A caller who may repeat a request names it by a key, and is told when the answer is that of the first time.
const (
	idempotencyHeader = "Idempotency-Key"
	replayedHeader    = "Idempotent-Replayed"
	maxIdempotencyKey = 255 // characters
)

// idempotencyKey is the key of a request, empty when it has none. The error is field.Errors.
func idempotencyKey(header http.Header) (string, error) {
	keys := header.Values(idempotencyHeader)
	if len(keys) == 0 {
		return "", nil
	}
	if len(keys) > 1 || !visible(keys[0]) || len(keys[0]) > maxIdempotencyKey {
		return "", bad(idempotencyHeader, "must be one key of 1 to 255 visible ASCII characters")
	}
	return keys[0], nil
}
