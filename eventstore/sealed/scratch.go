package sealed

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"sync"
)

// scratch is memory that sealing and opening use again and again.
type scratch struct {
	text, plain, blob, place []byte

	random [512]byte // asking the system for many random bytes costs little more than for a few
	fresh  []byte    // those that nobody has had yet
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func takeScratch() *scratch { return scratches.Get().(*scratch) }

// mostScratch is how many bytes of text are worth keeping the memory for. Most events have less than a thousandth part of
// what the largest have.
const mostScratch = 16 << 10

// giveBack leaves nothing of a person behind.
func (s *scratch) giveBack() {
	if cap(s.text) > mostScratch {
		return
	}
	clear(s.text)
	s.text, s.plain, s.blob, s.place = s.text[:0], s.plain[:0], s.blob[:0], s.place[:0]
	scratches.Put(s)
}

// draw fills in random bytes, and keeps none of them.
func (s *scratch) draw(into []byte) {
	if len(s.fresh) < len(into) {
		_, _ = rand.Read(s.random[:]) // never fails
		s.fresh = s.random[:]
	}
	n := copy(into, s.fresh)
	clear(s.fresh[:n])
	s.fresh = s.fresh[n:]
}

const nonceBytes = 12

var errShort = errors.New("nothing that was sealed is that short")

// seal appends a nonce of its own and the sealed text.
func (s *scratch) seal(aead cipher.AEAD, to, text, bound []byte) []byte {
	begin := len(to)
	to = append(to, make([]byte, nonceBytes)...)
	s.draw(to[begin:])
	return aead.Seal(to, to[begin:], text, bound)
}

// unseal appends what was sealed.
func unseal(aead cipher.AEAD, to, sealed, bound []byte) ([]byte, error) {
	if len(sealed) < nonceBytes {
		return nil, errShort
	}
	return aead.Open(to, sealed[:nonceBytes], sealed[nonceBytes:], bound)
}
