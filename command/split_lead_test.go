package command_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

func (w *world) split(p process, id, body string) (command.LeadSplit, error) {
	return p.SplitLead(w.t.Context(), command.SplitLead{Caller: owner, LeadID: id, Body: members(body)})
}

func (w *world) join(p process, into, from string) error {
	_, err := p.JoinLeads(w.t.Context(), command.JoinLeads{
		Caller: owner, LeadID: into, Body: members(fmt.Sprintf(`{"from":%q}`, from)),
	})
	return err
}

func (w *world) state(t require.TestingT, id string) lead.State {
	state, _, err := eventstore.Load(w.t.Context(), w.log, event.LeadStream(id), lead.Evolve)
	require.NoError(t, err)
	return state
}

// unshared is a process of a world whose contacts are never shared, so that strangers merge.
func unshared(t *testing.T) (*world, process) {
	w := newWorld(t)
	// Of two consents of one millisecond, a join takes that with the later id, which need not be the later event.
	var calls atomic.Int64
	began := time.Now()
	w.now = func() time.Time { return began.Add(time.Duration(calls.Add(1)) * time.Millisecond) }
	p := w.process()
	p.configure(t, account.Settings{Features: []string{account.FeatureAPI}, SharedAfter: new(0)})
	return w, p
}

func TestSplitLead_ByContact(t *testing.T) {
	t.Parallel()
	w, p := unshared(t)
	capture := func(phone, name string) command.LeadCaptured {
		c := w.capture(p,
			fmt.Sprintf(
				`{"phone":%q,"email":"test@test.com","name":%q,"metadata":{"source":"website"},`+
					`"customFields":{"of":%q}}`, phone, name, name,
			), "")
		require.NoError(t, c.err)
		return c.answer
	}
	first := capture("+919876500011", "Asha")
	capture("+919876500012", "Bala")
	capture("+919876500012", "Bala")
	id := first.Lead.ID
	_, err := p.UpdateLead(t.Context(), command.UpdateLead{
		Caller: owner, LeadID: id, Body: members(`{"status":"contacted"}`),
	})
	require.NoError(t, err)

	split, err := w.split(p, id, `{"phone":"+91 98765 00012"}`)
	require.NoError(t, err)
	require.Equal(t, "Asha", split.Stays.Name)
	require.Equal(t, "contacted", split.Stays.Status, "a change by hand stays")
	require.Equal(t, []string{"+919876500011"}, split.Stays.Phones)
	require.Equal(t, []string{"test@test.com"}, split.Stays.Emails, "what both had stays")
	require.Equal(t, 1, split.Stays.Sources[0].Arrivals)
	require.Equal(t, first.Lead.CreatedAt, split.Stays.CreatedAt)
	require.Equal(t, "Bala", split.Leaves.Name)
	require.Equal(t, "new", split.Leaves.Status)
	require.Empty(t, split.Leaves.Email)
	require.Equal(t, []string{"+919876500012"}, split.Leaves.Phones)
	require.Equal(t, 2, split.Leaves.Sources[0].Arrivals)
	require.Equal(t, `"Bala"`, string(split.Leaves.CustomFields["of"]))
	require.NotEqual(t, split.Stays.ContactUID, split.Leaves.ContactUID)

	again := capture("+919876500012", "Bala B")
	require.True(t, again.Merged)
	require.Equal(t, split.Leaves.ID, again.Lead.ID, "the claim has moved")
	require.Equal(t, split.Stays.ID, capture("+919876500011", "Asha A").Lead.ID)

	for body, name := range map[string]string{
		`{"phone":"+919876500012"}`: "phone", `{"email":"test@test.com"}`: "email", `{}`: "body",
		`{"phone":"1","email":"x"}`: "phone", `{"touches":[]}`: "body",
		`{"touches":["01KAHQ5V8M3N6R9T2W4Y7Z0B1A"]}`: "touches", `{"lead":"01KAHQ5V8M3N6R9T2W4Y7Z0B1A"}`: "lead",
		`{"phone":"+919876500011","touches":["x"]}`: "body", fmt.Sprintf(`{"touches":[%q]}`, first.EventID): "",
	} {
		_, err := w.split(p, id, body)
		if name == "" {
			continue
		}
		var wrong field.Errors
		require.ErrorAs(t, err, &wrong, body)
		require.Equal(t, name, wrong[0].Field, body)
	}
	_, err = w.split(p, "01KAHQ5V8M3N6R9T2W4Y7Z0B1A", `{"phone":"+919876500012"}`)
	require.ErrorIs(t, err, lead.ErrNotFound)
}

func TestSplitLead_DryRun(t *testing.T) {
	t.Parallel()
	w, p := unshared(t)
	asha := w.capture(p, `{"phone":"+919876500031","email":"test@test.com","name":"Asha"}`, "").answer
	second := w.capture(p,
		`{"phone":"+919876500032","email":"test@test.com","name":"Bala","metadata":{"source":"website"}}`, "")
	require.NoError(t, second.err)
	bala := second.answer
	other := w.capture(p, `{"phone":"+919876500033","name":"Cara","metadata":{"source":"website"}}`, "").answer
	require.NoError(t, w.join(p, asha.Lead.ID, other.Lead.ID))
	before := w.state(t, asha.Lead.ID)

	parts, err := p.LeadParts(t.Context(), owner.Account, asha.Lead.ID)
	require.NoError(t, err)
	require.Equal(t, []string{other.Lead.ID}, parts.Joined)
	require.Len(t, parts.Arrivals, 3)
	require.Equal(t, lead.PartArrival{
		TouchID: bala.EventID, At: parts.Arrivals[1].At, Source: "website", Phone: "+919876500032",
		Email: "test@test.com",
	}, parts.Arrivals[1])
	require.Equal(t, "website", parts.Arrivals[2].Source, "an arrival of a joined lead")

	dry := command.SplitLead{
		Caller: owner, LeadID: asha.Lead.ID, Body: members(fmt.Sprintf(`{"touches":[%q]}`, parts.Arrivals[1].TouchID)),
		DryRun: true,
	}
	preview, err := p.SplitLead(t.Context(), dry)
	require.NoError(t, err)
	require.Equal(t, "Bala", preview.Leaves.Name)
	require.Equal(t, 1, preview.Arrivals)
	require.False(t, preview.Undone)
	require.Equal(t, before, w.state(t, asha.Lead.ID), "a dry run appends nothing")

	_, err = w.split(p, asha.Lead.ID, `{"phone":"+919876500032"}`)
	require.NoError(t, err)
	parts, err = p.LeadParts(t.Context(), owner.Account, asha.Lead.ID)
	require.NoError(t, err)
	require.Len(t, parts.Arrivals, 2, "the other lead has the third")
	undone, err := w.split(p, asha.Lead.ID, fmt.Sprintf(`{"lead":%q}`, other.Lead.ID))
	require.NoError(t, err)
	require.True(t, undone.Undone)
	_, err = p.LeadParts(t.Context(), "another", asha.Lead.ID)
	require.ErrorIs(t, err, lead.ErrNotFound)
}

func TestSplitLead_UndoesJoin(t *testing.T) {
	t.Parallel()
	w, p := unshared(t)
	asha := w.capture(p, `{"phone":"+919876500021","name":"Asha"}`, "").answer.Lead
	bala := w.capture(p, `{"phone":"+919876500022","name":"Bala","metadata":{"source":"website"}}`, "").answer.Lead
	_, err := p.UpdateLead(t.Context(), command.UpdateLead{
		Caller: owner, LeadID: bala.ID, Body: members(`{"status":"qualified"}`),
	})
	require.NoError(t, err)
	before := w.state(t, bala.ID)
	require.NoError(t, w.join(p, asha.ID, bala.ID))
	since := w.capture(p, `{"phone":"+919876500022","email":"bala@example.com","metadata":{"source":"website"}}`, "").
		answer
	require.Equal(t, asha.ID, since.Lead.ID)

	split, err := w.split(p, asha.ID, fmt.Sprintf(`{"lead":%q}`, bala.ID))
	require.NoError(t, err)
	require.Equal(t, bala.ID, split.Leaves.ID)
	require.Equal(t, lead.Live, split.Leaves.Phase)
	require.Equal(t, before.LeadFields.Status, split.Leaves.Status)
	require.Equal(t, [3]any{before.Name, before.ContactUID, before.CreatedAt},
		[3]any{split.Leaves.Name, split.Leaves.ContactUID, split.Leaves.CreatedAt})
	require.Equal(t, []string{"bala@example.com"}, split.Leaves.Emails, "what arrived since goes along")
	require.Equal(t, []string{"+919876500021"}, split.Stays.Phones)
	require.Empty(t, split.Stays.Emails)
	require.Empty(t, split.Stays.Joined)
	require.Equal(t, asha.Name, split.Stays.Name)
	_, err = w.split(p, asha.ID, fmt.Sprintf(`{"lead":%q}`, bala.ID))
	require.Error(t, err)
	require.NoError(t, w.join(p, asha.ID, bala.ID), "a join undoes it")
	joined := w.state(t, asha.ID)
	require.ElementsMatch(t, []string{"+919876500021", "+919876500022"}, joined.Phones)
}

// A random history, beside a model of which lead has which arrivals, consents and changes by hand.
func TestSplitLead_Model(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w, p := unshared(t)
		owns := map[string][]string{}    // arrivals by lead
		changed := map[string][]string{} // custom fields that were set by hand, by the lead that they were set on
		var leads []string
		for i := range rapid.IntRange(3, 14).Draw(rt, "steps") {
			live := slices.DeleteFunc(slices.Clone(leads), func(id string) bool { return len(owns[id]) == 0 })
			step := rapid.IntRange(0, 10).Draw(rt, "step")
			if len(live) == 0 {
				step = 0
			}
			switch {
			case step < 5:
				c := w.capture(p,
					fmt.Sprintf(`{"phone":"+9198765001%02d","email":"p%d@example.org","metadata":{"source":"website"%s}}`,
						rapid.IntRange(0, 5).Draw(rt, "phone"), rapid.IntRange(0, 3).Draw(rt, "email"),
						rapid.SampledFrom([]string{
							``, `,"consent":{"purpose":"call"}`,
							`,"consent":[{"purpose":"call","granted":false},{"purpose":"mail","text":"x"}]`,
						}).Draw(rt, "consents")), "")
				require.NoError(rt, c.err)
				if !slices.Contains(leads, c.answer.Lead.ID) {
					leads = append(leads, c.answer.Lead.ID)
				}
				owns[c.answer.Lead.ID] = append(owns[c.answer.Lead.ID], c.answer.EventID)
			case step == 5 && len(live) > 1:
				into, from := live[0], live[1]
				if rapid.Bool().Draw(rt, "other way") {
					into, from = from, into
				}
				require.NoError(rt, w.join(p, into, from))
				owns[into], owns[from] = append(owns[into], owns[from]...), nil
			case step == 7:
				id := rapid.SampledFrom(live).Draw(rt, "consents")
				_, _, err := p.RecordConsents(t.Context(), command.RecordConsents{
					Caller: owner, LeadID: id, Consents: jsontext.Value(rapid.SampledFrom([]string{
						`{"purpose":"call","granted":false}`, `[{"purpose":"mail"},{"purpose":"call"}]`,
					}).Draw(rt, "by hand")),
				})
				require.NoError(rt, err)
			case step == 10:
				id := rapid.SampledFrom(live).Draw(rt, "changed")
				key := fmt.Sprintf("by hand %d", i)
				_, err := p.UpdateLead(t.Context(), command.UpdateLead{
					Caller: owner, LeadID: id, Body: members(fmt.Sprintf(`{"customFields":{%q:1}}`, key)),
				})
				require.NoError(rt, err)
				changed[id] = append(changed[id], key)
			case step == 6:
				id := rapid.SampledFrom(live).Draw(rt, "released")
				if s := w.state(rt, id); len(s.Phones) > 1 {
					_, err := p.ReleaseContact(t.Context(), command.ReleaseContact{
						Caller: owner, LeadID: id, Body: members(fmt.Sprintf(`{"phone":%q}`, s.Phones[0])),
					})
					require.NoError(rt, err)
				}
			default:
				id := rapid.SampledFrom(live).Draw(rt, "split")
				s := w.state(rt, id)
				moved := rapid.SliceOfNDistinct(rapid.SampledFrom(owns[id]), 1, len(owns[id]),
					rapid.ID[string]).Draw(rt, "touches")
				body := touchesBody(rt, moved)
				if len(s.Joined) > 0 && rapid.Bool().Draw(rt, "undo") {
					body = fmt.Sprintf(`{"lead":%q}`, rapid.SampledFrom(s.Joined).Draw(rt, "joined"))
				}
				split, err := w.split(p, id, body)
				var wrong field.Errors
				if errors.As(err, &wrong) {
					break // nothing or everything would go, or a side would have no contact
				}
				require.NoError(rt, err)
				fact := w.last(rt, id).(event.LeadSplit)
				if body[:3] == `{"t` {
					require.ElementsMatch(rt, moved, fact.Touches)
				}
				owns[id] = slices.DeleteFunc(owns[id], func(touch string) bool {
					return slices.Contains(fact.Touches, touch)
				})
				owns[split.Leaves.ID] = append(owns[split.Leaves.ID], fact.Touches...)
				if !slices.Contains(leads, split.Leaves.ID) {
					leads = append(leads, split.Leaves.ID)
				}
				require.Equal(rt, w.state(rt, id), split.Stays)
			}
			held := map[string]int{}
			for _, id := range leads {
				s := w.state(rt, id)
				if require.Equal(rt, len(owns[id]) > 0, s.Phase == lead.Live,
					"a lead has arrivals"); s.Phase != lead.Live {
					continue
				}
				arrivals := 0
				for _, entry := range s.Sources {
					arrivals += entry.Arrivals
				}
				require.Equal(rt, len(owns[id]), arrivals)
				w.requireConsents(rt, s, owns[id])
				byHand := slices.Clone(changed[id])
				for _, part := range s.Joined {
					require.Equal(rt, lead.Joined, w.state(rt, part).Phase, "a lead that lives is no part of another")
					byHand = append(byHand, changed[part]...)
				}
				require.ElementsMatch(rt, byHand, slices.Collect(maps.Keys(s.CustomFields)))
				require.NotEmpty(rt, append(slices.Clone(s.Phones), s.Emails...))
				held[id] = len(s.Phones) + len(s.Emails)
			}
			claimed := map[string]int{}
			for _, of := range w.claims() {
				if slices.Contains(leads, of.Holder) {
					claimed[of.Holder]++
				}
			}
			require.Equal(rt, held, claimed, "a lead has what it claims")
		}
	})
}

// requireConsents requires that a lead has the latest consent of each purpose: of its arrivals, and of those recorded
// by hand for it and for the leads that are part of it; and that its events tell of each change.
func (w *world) requireConsents(t require.TestingT, s lead.State, arrivals []string) {
	type given struct{ event, purpose string }
	latest, at := map[string]event.ConsentState{}, map[string]time.Time{}
	var all []given
	known := map[string]bool{} // by the changes that endpoints get
	for _, recorded := range w.events() {
		fact, err := recorded.Fact()
		require.NoError(t, err)
		id, on := fact.ID.String(), event.LeadID(fact.Stream)
		if on == s.ID {
			of := event.PurposesOf(fact.Data)
			for _, purpose := range of.ChangedConsents {
				granted, has := of.Consents[purpose]
				if known[purpose] = granted; !has {
					delete(known, purpose)
				}
			}
		}
		_, byHand := fact.Data.(event.LeadConsented)
		its := byHand && (on == s.ID || slices.Contains(s.Joined, on)) || slices.Contains(arrivals, id)
		consents, seen := lead.ConsentsOf(&fact)
		for _, c := range consents {
			if !its {
				break
			}
			all = append(all, given{id, c.Purpose})
			if !seen.Before(at[c.Purpose]) {
				at[c.Purpose] = seen
				latest[c.Purpose] = event.ConsentState{Granted: c.Granted, EventID: id}
			}
		}
	}
	require.Len(t, s.Consents, len(latest))
	for purpose, want := range latest {
		got := s.Consents[purpose]
		require.Equal(t, want, event.ConsentState{Granted: got.Granted, EventID: got.EventID}, purpose)
		require.Equal(t, at[purpose], got.At, purpose)
	}
	require.Equal(t, s.Granted(), known)
	history, err := eventstore.ReadRelated(w.t.Context(), w.log, event.LeadStream(s.ID), lead.Related)
	require.NoError(t, err)
	var listed []given
	for _, c := range s.AllConsents(history) {
		listed = append(listed, given{c.Fact.ID.String(), c.Purpose})
	}
	require.Equal(t, all, listed)
}

func touchesBody(t require.TestingT, ids []string) string {
	encoded, err := json.Marshal(map[string]any{"touches": ids})
	require.NoError(t, err)
	return string(encoded)
}

// last returns the last fact of a lead.
func (w *world) last(t require.TestingT, id string) event.Data {
	recorded, err := w.log.Last(w.t.Context(), event.LeadStream(id))
	require.NoError(t, err)
	fact, err := recorded.Fact()
	require.NoError(t, err)
	return fact.Data
}
