package command

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore/event"
)

// holderCache remembers, of claims that were used lately, which lead holds each: so a person who comes again is not taken
// for new first. It is a guess, which the lead's own stream confirms or not. Of a person it holds nothing but a part of a
// claim's name, which is a hash.
//
// It is a table of a fixed size, 5 MiB for 260,000 claims, since maps that grow would take as much for a third of them. It
// has no pointers, so that the garbage collector has nothing to look for in it.
type holderCache struct {
	mu      sync.Mutex
	buckets []bucket // none before somebody is remembered
}

const (
	buckets    = 1 << 15
	bucketSize = 8
)

// bucket holds claims whose hashes begin with the same bits. A new one takes the place of the oldest.
type bucket struct {
	tags  [bucketSize]uint32 // 0: none
	leads [bucketSize]ulid.ULID
	next  uint32
}

// bucketOf is the bucket of a claim, and its tag there. Two claims can have both in common; then the guess is wrong.
func bucketOf(claimStream string) (number, tag uint32, ok bool) {
	hash := strings.TrimPrefix(claimStream, event.ClaimPrefix)
	if len(hash) < 16 {
		return 0, 0, false
	}
	first, err := strconv.ParseUint(hash[:16], 16, 64)
	return uint32(first >> 32), uint32(first) | 1, err == nil
}

// holder is the lead that is thought to have what was claimed.
func (h *holderCache) holder(claimStream string) (leadID string, ok bool) {
	number, tag, ok := bucketOf(claimStream)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !ok || h.buckets == nil {
		return "", false
	}
	b := &h.buckets[number%uint32(len(h.buckets))]
	if i := slices.Index(b.tags[:], tag); i >= 0 {
		return b.leads[i].String(), true
	}
	return "", false
}

func (h *holderCache) remember(claimStream, leadID string) {
	number, tag, ok := bucketOf(claimStream)
	id, err := ulid.ParseStrict(leadID)
	if !ok || err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.buckets == nil {
		h.buckets = make([]bucket, buckets)
	}
	b := &h.buckets[number%uint32(len(h.buckets))]
	i := slices.Index(b.tags[:], tag)
	if i < 0 {
		i = int(b.next % bucketSize)
		b.next++
	}
	b.tags[i], b.leads[i] = tag, id
}

// forget is for a claim whose lead is erased: whoever comes with that phone or email next is new, and need not read the
// long stream of the erased lead to find that out.
func (h *holderCache) forget(claimStream string) {
	number, tag, ok := bucketOf(claimStream)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !ok || h.buckets == nil {
		return
	}
	b := &h.buckets[number%uint32(len(h.buckets))]
	if i := slices.Index(b.tags[:], tag); i >= 0 {
		b.tags[i] = 0
	}
}

// guess is the lead that the arrival's person is thought to be. If the phone and the email are thought to be of two different
// leads, there is no guess.
func (c *capture) guess() (leadID string, ok bool) {
	for _, stream := range []string{c.phone, c.email} {
		if stream == "" {
			continue
		}
		switch held, known := c.holders.holder(stream); {
		case !known || held == leadID:
		case ok:
			return "", false
		default:
			leadID, ok = held, true
		}
	}
	return leadID, ok
}

// remember takes note of what was read, or has just been written: who has the arrival's phone and email.
func (c *capture) remember(phone, email owner) {
	if c.phone != "" && phone.lead != nil {
		c.holders.remember(c.phone, phone.lead.ID)
	}
	if c.email != "" && email.lead != nil {
		c.holders.remember(c.email, email.lead.ID)
	}
}
