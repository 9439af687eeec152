package eventstore

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff paces the attempts at something that fails for a while, or that is awaited. The pause doubles from Shortest
// to Longest. Up to half of it is left out at random, so that processes do not attempt in step.
type Backoff struct {
	Shortest, Longest time.Duration
	current           time.Duration // 0: no failure since the last success
}

// Next returns the pause before the next attempt.
func (b *Backoff) Next() time.Duration {
	b.current = min(max(2*b.current, b.Shortest), b.Longest)
	return b.current - rand.N(b.current/2+1)
}

// Wait pauses before the next attempt, or until the context is done, and returns the context's error then.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Failing reports whether there was a pause since the last success.
func (b *Backoff) Failing() bool { return b.current > 0 }

// Reset begins with the shortest pause again, after a success.
func (b *Backoff) Reset() { b.current = 0 }
