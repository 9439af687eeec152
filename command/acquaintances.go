package command

import (
	"strconv"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore/event"
)

// acquainted is how many claims are remembered before those are let go that were remembered a generation ago, of about
// 40 bytes each.
const acquainted = 49152

// acquaintances remembers which lead has what was claimed lately: of people who come again, so that nobody first takes
// them for new. It is a guess, which the lead's own stream confirms or not, and it holds nothing of a person but the name
// of a claim. It has no pointers, so that the garbage collector has nothing to look for in it.
type acquaintances struct {
	mu              sync.Mutex
	latest, earlier map[claimName]ulid.ULID
}

// claimName is the first half of the hash in a claim's name. Where that is not enough to tell two apart, the guess is wrong.
type claimName uint64

func nameOf(claimStream string) (claimName, bool) {
	hash := strings.TrimPrefix(claimStream, event.ClaimPrefix)
	if len(hash) < 16 {
		return 0, false
	}
	name, err := strconv.ParseUint(hash[:16], 16, 64)
	return claimName(name), err == nil
}

// holder is the lead that is thought to have what was claimed.
func (a *acquaintances) holder(claimStream string) (leadID string, ok bool) {
	name, ok := nameOf(claimStream)
	if !ok {
		return "", false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	id, ok := a.latest[name]
	if !ok {
		if id, ok = a.earlier[name]; !ok {
			return "", false
		}
	}
	return id.String(), true
}

func (a *acquaintances) remember(claimStream, leadID string) {
	name, ok := nameOf(claimStream)
	id, err := ulid.ParseStrict(leadID)
	if !ok || err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.latest == nil || len(a.latest) >= acquainted {
		a.latest, a.earlier = a.earlier, a.latest
		if a.latest == nil {
			a.latest = make(map[claimName]ulid.ULID)
		}
		clear(a.latest)
	}
	a.latest[name] = id
}

// guess is the lead that the arrival's person is thought to be. Two that are thought to be are none.
func (c *capture) guess() (leadID string, ok bool) {
	for _, stream := range []string{c.phone, c.email} {
		if stream == "" {
			continue
		}
		switch held, known := c.acquaintances.holder(stream); {
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
		c.acquaintances.remember(c.phone, phone.lead.ID)
	}
	if c.email != "" && email.lead != nil {
		c.acquaintances.remember(c.email, email.lead.ID)
	}
}
