package systemtest

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// What becomes of leads that are erased or joined, in the model of a family.

// knownLeads are what the callers of a family have heard of, there or not.
type knownLeads struct {
	mu       sync.Mutex
	ids      []string
	erasures int
}

func (k *knownLeads) learn(out captured) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if out.lead != "" && !slices.Contains(k.ids, out.lead) {
		k.ids = append(k.ids, out.lead)
	}
}

// ask is mostly a capture, and otherwise about leads that were heard of lately.
func (k *knownLeads) ask(family int) capture {
	k.mu.Lock()
	defer k.mu.Unlock()
	lately := slices.Clone(k.ids[max(0, len(k.ids)-4):])
	rand.Shuffle(len(lately), func(i, j int) { lately[i], lately[j] = lately[j], lately[i] })
	switch n := rand.IntN(12); {
	case n == 0 && len(lately) > 0 && k.erasures < mostErasing:
		k.erasures++
		return capture{family: family, do: "erase", lead: lately[0]}
	case n < 3 && len(lately) > 1:
		return capture{family: family, do: "join", lead: lately[0], from: lately[1]}
	}
	return arbitraryCapture(family)
}

// refusedAsJoined reports whether an answer says that a lead was joined into another.
func (out captured) refusedAsJoined() bool { return out.status == 409 && out.code == "LEAD_JOINED" }

func (f *family) named(id string) int {
	return slices.IndexFunc(f.leads[:], func(l modelLead) bool { return l.id == id })
}

// survivor is the lead that another is part of by now. A lead that was not joined is its own.
func (f *family) survivor(lead int) int {
	for f.leads[lead].into != 0 {
		lead = f.leads[lead].into
	}
	return lead
}

// fades tells that a lead was joined into one that is erased. It goes with it, but not in the same moment.
func (f *family) fades(lead int) bool {
	return f.leads[lead].into != 0 && f.leads[f.survivor(lead)].erased
}

// erase has an erasure have its effect.
func (f family) erase(in capture, out captured) (bool, family) {
	lead := f.named(in.lead)
	switch {
	case lead < 0:
		return false, f // nobody could have heard of it
	case f.fades(lead):
		return out.unknown || out.status == 200 || out.status == 404, f
	case f.leads[lead].into != 0:
		return out.unknown || out.refusedAsJoined(), f
	case f.leads[lead].erased:
		return out.unknown || out.status == 404, f
	}
	f.leads[lead].erased = true
	for n := range f.phones {
		if f.phones[n] == lead {
			f.phones[n] = 0
		}
		if f.emails[n] == lead {
			f.emails[n] = 0
		}
	}
	return out.unknown || out.status == 200, f
}

// join has a join have its effect.
func (f family) join(in capture, out captured) (bool, family) {
	into, from := f.named(in.lead), f.named(in.from)
	if into < 0 || from < 0 {
		return false, f
	}
	answers := func(due captured, lead int) (bool, family) {
		if due.lead = f.leads[lead].id; due.lead == "" { // no answer has told it yet
			due.lead, f.leads[lead].id = out.lead, out.lead
		}
		return out.unknown || due == out, f
	}
	switch last := f.survivor(from); {
	case f.leads[into].erased, f.fades(into):
		return out.unknown || out.status == 404, f
	case last != from && (f.leads[from].into == into || last == into): // the same again
		return answers(f.shown(200, last), last)
	case f.leads[into].into != 0:
		return out.unknown || out.refusedAsJoined(), f
	case f.leads[from].erased, f.fades(from):
		return out.unknown || out.status == 404, f
	case last != from:
		return out.unknown || out.refusedAsJoined(), f
	}
	one, other := &f.leads[into], &f.leads[from]
	other.into = into
	one.sources |= other.sources
	if one.phone == 0 {
		one.phone = other.phone
	}
	if one.email == 0 {
		one.email = other.email
	}
	for n := range f.phones {
		if f.phones[n] == from {
			f.phones[n] = into
		}
		if f.emails[n] == from {
			f.emails[n] = into
		}
	}
	return answers(f.shown(200, into), into)
}
