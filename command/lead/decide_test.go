package lead

import (
	"strconv"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	idA, idB         = "01KAHQ5V8M3N6R9T2W4Y7Z0B1A", "01KAHQ5V8M3N6R9T2W4Y7Z0B1B"
	phoneA, phoneB   = "+919876543210", "+919876543211"
	phoneNew         = "+919876543219"
	emailA, emailB   = "asha@example.com", "bala@example.com"
	emailNew         = "new@example.com"
	oldPhoneA        = "+919876543200"
	oldEmailA        = "asha@old.example"
	idNew, idContact = "01KAHQ5V8M3N6R9T2W4Y7Z0B1N", "01KAHQ5V8M3N6R9T2W4Y7Z0B1C"
	idOpportunity    = "01KAHQ5V8M3N6R9T2W4Y7Z0B1P"
)

var (
	someIDs = NewIDs{Lead: idNew, Contact: idContact, Opportunity: idOpportunity}
	someDay = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
)

func leadFact(id string, at time.Time, data event.Data) event.Fact {
	return event.Fact{
		Stream: event.LeadStream(id), At: at, Data: data,
		Metadata: event.Metadata{Account: "acme", Credential: "token:01K", RequestID: "req-1"},
	}
}

func raw(pairs ...string) map[string]jsontext.Value {
	out := map[string]jsontext.Value{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = jsontext.Value(pairs[i+1])
	}
	return out
}

// leadA returns lead A after an arrival from each of sources. It has a former phone and email.
func leadA(sources ...string) *State {
	s := Evolve(State{}, leadFact(idA, someDay, event.LeadCreated{
		ContactUID: "contact-a",
		LeadFields: event.LeadFields{
			Name: "Asha", Phone: oldPhoneA, Email: oldEmailA, Status: "new", Temperature: "warm",
		}, Source: sources[0],
	}))
	for i, source := range append(sources, sources[0]) {
		s = Evolve(s, leadFact(idA, someDay.Add(time.Duration(i)*time.Hour), event.LeadMerged{
			Source: source, LeadFields: event.LeadFields{Phone: phoneA, Email: emailA},
		}))
	}
	return &s
}

// leadB returns lead B after one arrival from source.
func leadB(source string) *State {
	s := Evolve(State{}, leadFact(idB, someDay, event.LeadCreated{
		ContactUID: "contact-b",
		LeadFields: event.LeadFields{Name: "Bala", Phone: phoneB, Email: emailB, Status: "new", Temperature: "warm"},
		Source:     source,
	}))
	return &s
}

// Outcomes of an arrival.
const (
	opens      = "opens a lead"
	merges     = "merges into A"
	mergesOver = "merges into A, the email stays with B"
	dupSource  = "409 DUPLICATE_LEAD_SOURCE, existing lead A"
	dupEmail   = "409 DUPLICATE_LEAD_EMAIL, existing lead A"
	dupClash   = "409 DUPLICATE_LEAD_EMAIL, existing leads B and A"
)

func outcome(t *testing.T, decision Decision, err error) string {
	t.Helper()
	if err != nil {
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal)
		require.Zero(t, decision)
		require.Contains(t, refusal.Error(), refusal.Fact.LeadID, "the message has the id of the existing lead")
		for _, private := range []string{phoneA, phoneB, phoneNew, emailA, emailB, emailNew} {
			require.NotContains(t, refusal.Error(), private)
		}
		names := map[string]string{idA: "existing lead A", idB: "existing leads B"}
		text := "409 " + refusal.Fact.Code + ", " + names[refusal.Fact.LeadID]
		if refusal.Fact.Other != "" {
			require.Equal(t, idA, refusal.Fact.Other)
			text += " and A"
		}
		return text
	}
	if !decision.Merged {
		require.Equal(t, idNew, decision.LeadID)
		require.IsType(t, event.LeadCreated{}, decision.Fact)
		return opens
	}
	require.Equal(t, idA, decision.LeadID)
	if merged := decision.Fact.(event.LeadMerged); merged.EmailHeldBy != "" {
		require.Equal(t, idB, merged.EmailHeldBy)
		require.Empty(t, merged.Email)
		return mergesOver
	}
	return merges
}

// The complete de-duplication table: owner of the phone, owner of the email, kind of source, new or known source.
func TestDecide_Identity(t *testing.T) {
	t.Parallel()
	kinds := map[string][]string{
		"self-service": {
			"website", "chatbot", "landing", "whatsapp", "google_form", "ai_powered_lead", "payment_page_drop",
		},
		"curated": {"manual", "csv_import", "api", "webhook"},
		"ads":     {"facebook_ad", "google_ad"},
	}
	type row struct {
		kind              string
		newSource, repeat string
	}
	for _, c := range []struct {
		owned                    string
		phone, email             string
		byPhone, byEmail         bool // A owns it
		byEmailB                 bool // B owns the email
		claimsPhone, claimsEmail bool
		rows                     []row
	}{
		{
			owned: "no lead has the phone", phone: phoneNew, claimsPhone: true,
			rows: []row{{"self-service", opens, opens}, {"curated", opens, opens}, {"ads", opens, opens}},
		},
		{
			owned: "no lead has the email", email: emailNew, claimsEmail: true,
			rows: []row{{"self-service", opens, opens}, {"curated", opens, opens}, {"ads", opens, opens}},
		},
		{
			owned: "no lead has either", phone: phoneNew, email: emailNew, claimsPhone: true, claimsEmail: true,
			rows: []row{{"self-service", opens, opens}, {"curated", opens, opens}, {"ads", opens, opens}},
		},
		{
			owned: "A owns the phone, no email given", phone: phoneA, byPhone: true,
			rows: []row{{"self-service", merges, merges}, {"curated", merges, dupSource}, {"ads", merges, merges}},
		},
		{
			owned: "A owns the phone, the email is new", phone: phoneA, email: emailNew, byPhone: true,
			claimsEmail: true,
			rows: []row{
				{"self-service", merges, merges}, {"curated", merges, dupSource}, {"ads", merges, merges},
			},
		},
		{
			owned: "A owns the phone as a former one, the email is new", phone: oldPhoneA, email: emailNew,
			byPhone: true, claimsEmail: true,
			rows: []row{{"self-service", merges, merges}, {"curated", merges, dupSource}, {"ads", merges, merges}},
		},
		{
			owned: "A owns the email, no phone given", email: emailA, byEmail: true,
			rows: []row{{"self-service", merges, merges}, {"curated", merges, dupSource}, {"ads", merges, merges}},
		},
		{
			owned: "A owns the email, the phone is new", phone: phoneNew, email: emailA, byEmail: true,
			claimsPhone: true,
			rows: []row{
				{"self-service", merges, merges}, {"curated", merges, dupEmail}, {"ads", merges, merges},
			},
		},
		{
			owned: "A owns the email as a former one, the phone is new", phone: phoneNew, email: oldEmailA,
			byEmail: true, claimsPhone: true,
			rows: []row{{"self-service", merges, merges}, {"curated", merges, dupEmail}, {"ads", merges, merges}},
		},
		{
			owned: "A owns both", phone: phoneA, email: emailA, byPhone: true, byEmail: true,
			rows: []row{{"self-service", merges, merges}, {"curated", merges, dupSource}, {"ads", merges, merges}},
		},
		{
			owned: "A owns both, the phone as a former one", phone: oldPhoneA, email: emailA, byPhone: true,
			byEmail: true,
			rows:    []row{{"self-service", merges, merges}, {"curated", merges, dupSource}, {"ads", merges, merges}},
		},
		{
			owned: "A owns the phone, B the email", phone: phoneA, email: emailB, byPhone: true, byEmailB: true,
			rows: []row{
				{"self-service", mergesOver, mergesOver}, {"curated", dupClash, dupClash}, {"ads", dupClash, dupClash},
			},
		},
	} {
		for _, row := range c.rows {
			for _, source := range kinds[row.kind] {
				other := "website"
				if source == other {
					other = "chatbot"
				}
				for _, known := range []bool{false, true} {
					a, want := leadA(other), row.newSource
					if known {
						a, want = leadA(other, source), row.repeat
					}
					var byPhone, byEmail *State
					if c.byPhone {
						byPhone = a
					}
					if c.byEmail {
						byEmail = a
					}
					if c.byEmailB {
						byEmail = leadB(source) // the source of B is irrelevant
					}
					decision, err := Decide(Arrival{
						LeadFields: event.LeadFields{Phone: c.phone, Email: c.email}, Source: source,
					}, someRules, byPhone, byEmail, someIDs)
					name := c.owned + ", from " + source + ", known " + strconv.FormatBool(known)
					require.Equal(t, want, outcome(t, decision, err), name)
					if err != nil {
						continue
					}
					require.Equal(t, c.claimsPhone, decision.ClaimsPhone, name)
					require.Equal(t, c.claimsEmail, decision.ClaimsEmail, name)
					if merged, ok := decision.Fact.(event.LeadMerged); ok {
						require.Equal(t, !known, merged.NewSource, name)
						require.Equal(t, source, merged.Source, name)
					}
				}
			}
		}
	}
}

func TestDecide_EverySource(t *testing.T) {
	t.Parallel()
	for source, want := range map[string][3]bool{ // may be named by an arrival, curated, self-service
		"api": {true, true, false}, "webhook": {true, true, false}, "manual": {false, true, false},
		"csv_import": {false, true, false}, "website": {true, false, true}, "chatbot": {true, false, true},
		"landing": {true, false, true}, "whatsapp": {true, false, true},
		"google_form": {true, false, true}, "ai_powered_lead": {true, false, true},
		"payment_page_drop": {true, false, true}, "facebook_ad": {true, false, false},
		"google_ad": {true, false, false}, "tiktok": {}, "": {}, "Website": {},
	} {
		require.Equal(t, want, [3]bool{Canonical(source), isCurated(source), isSelfService(source)}, source)
	}
	require.Len(t, canonicalSources, 11)
	require.Equal(t, "api", DefaultSource)
}

func TestDecide_RefusalHasNoPersonalData(t *testing.T) {
	t.Parallel()
	a := Arrival{
		LeadFields: event.LeadFields{Name: "Asha", Phone: phoneA, Email: emailB, CustomFields: raw("city", `"Pune"`)},
		Source:     "api", IP: "198.51.100.7",
	}
	_, err := Decide(a, someRules, leadA("api"), leadB("api"), someIDs)
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, event.LeadRefused{
		Source: "api", Code: "DUPLICATE_LEAD_EMAIL", LeadID: idB, Other: idA,
	}, refusal.Fact)

	_, err = Decide(Arrival{LeadFields: event.LeadFields{Phone: phoneA}, Source: "api"}, someRules,
		leadA("api"), nil, someIDs)
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, event.LeadRefused{Source: "api", Code: "DUPLICATE_LEAD_SOURCE", LeadID: idA}, refusal.Fact)
}

func TestDecide_UnknownStage(t *testing.T) {
	t.Parallel()
	removed := *leadA("website")
	removed.Status = "Parked"
	unknown := func(source, status string) Arrival {
		return Arrival{LeadFields: event.LeadFields{Phone: phoneA}, Source: source, UnknownStatus: status}
	}

	_, err := Decide(unknown("website", "Parked"), someRules, nil, nil, someIDs)
	require.Equal(t, []string{"status"}, fieldNames(t, err), "a new lead")
	_, err = Decide(unknown("website", "Parked"), someRules, leadA("website"), nil, someIDs)
	require.Equal(t, []string{"status"}, fieldNames(t, err), "a lead on another stage")
	require.ErrorContains(t, err, "new, In Talks, won", "the message lists the stages")

	for _, status := range []string{"Parked", "PARKED"} {
		decision, err := Decide(unknown("website", status), someRules, &removed, nil, someIDs)
		require.NoError(t, err, status)
		merged := decision.Fact.(event.LeadMerged)
		require.Equal(t, "Parked", merged.Status, "in the spelling of the lead")
		require.NotContains(t, merged.Changed, "status")
	}
}

func TestDecide_ErrorsBeforeConflicts(t *testing.T) {
	t.Parallel()
	a := Arrival{LeadFields: event.LeadFields{Phone: phoneA}, Source: "api", UnknownStatus: "Parked"}
	_, err := Decide(a, someRules, leadA("api"), nil, someIDs)
	require.Equal(t, []string{"status"}, fieldNames(t, err), "a repeat from a curated source")

	a.Email = emailB
	_, err = Decide(a, someRules, leadA("website"), leadB("api"), someIDs)
	require.Equal(t, []string{"status"}, fieldNames(t, err), "two leads")

	parked := *leadA("api")
	parked.Status = "parke\u0301"
	_, err = Decide(Arrival{LeadFields: event.LeadFields{Phone: phoneA}, Source: "api", UnknownStatus: "Park\u00c9"},
		someRules, &parked, nil, someIDs)
	require.Error(t, err)
	require.Equal(t, dupSource, outcome(t, Decision{}, err), "the lead's own stage is valid")
}
