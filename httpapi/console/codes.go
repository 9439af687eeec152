package console

import (
	"crypto/sha256"
	"sync"
	"time"
)

// codeLife is how long a sign-in link is good for.
const codeLife = 10 * time.Minute

// Codes are one-time codes of sign-in links. Each stands for a JWT, works once, and not for long. They live in the memory
// of the process that gave them out.
type Codes struct {
	now    func() time.Time
	mu     sync.Mutex
	issued map[[sha256.Size]byte]issuedCode // by the code's hash: looking one up takes no longer for one that is nearly right
}

type issuedCode struct {
	jwt   string
	until time.Time
}

// NewCodes returns a place for codes.
func NewCodes(now func() time.Time) *Codes {
	return &Codes{now: now, issued: make(map[[sha256.Size]byte]issuedCode)}
}

// Issue makes a code that signs its first bearer in by a JWT.
func (c *Codes) Issue(jwt string) string {
	code := newCode()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.issued[sha256.Sum256([]byte(code))] = issuedCode{jwt, c.now().Add(codeLife)}
	return code
}

// redeem returns the JWT of a code that is good still. It is not from then on.
func (c *Codes) redeem(code string) (jwt string, ok bool) {
	if c == nil {
		return "", false
	}
	hash := sha256.Sum256([]byte(code))
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known := c.issued[hash]
	delete(c.issued, hash)
	return found.jwt, known && c.now().Before(found.until)
}
