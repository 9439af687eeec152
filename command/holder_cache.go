package command

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore/event"
)

// holderCache remembers which lead holds each recently used claim, so that a person who comes again is not first taken for new.
// It is only a guess, which the lead's own stream must confirm. It contains no personal data: only a part of the claim's name,
// which is a keyed hash.
//
// It is a table of fixed size, 5 MiB for 260,000 claims; a map would take as much for a third of them. It has no pointers, so
// the garbage collector need not scan it.
type holderCache struct {
	mu      sync.Mutex
	buckets []bucket // nil until the first claim is remembered
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

// bucketOf returns the bucket of a claim, and its tag in it. If two claims have the same bucket and tag, the guess is wrong.
func bucketOf(claimStream string) (number, tag uint32, ok bool) {
	hash := strings.TrimPrefix(claimStream, event.ClaimPrefix)
	if len(hash) < 16 {
		return 0, 0, false
	}
	first, err := strconv.ParseUint(hash[:16], 16, 64)
	return uint32(first >> 32), uint32(first) | 1, err == nil
}

// holder returns the lead that most likely holds a claim.
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

// forget removes a claim, because its lead was erased. Whoever next comes with that phone or email is new, and need not read the
// stream of the erased lead to find that out.
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

// guess returns the lead that the cache has for the arrival's phone and email. If it has a different lead for each, there is no
// guess.
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

// remember puts the owners of the arrival's phone and email into the cache.
func (c *capture) remember(phone, email owner) {
	if c.phone != "" && phone.lead != nil {
		c.holders.remember(c.phone, phone.lead.ID)
	}
	if c.email != "" && email.lead != nil {
		c.holders.remember(c.email, email.lead.ID)
	}
}
