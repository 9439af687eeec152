package systemtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A second implementation of what the service keeps of an account, written from its documents. It shares no code with
// the program. It folds requests one after another. Ids, times and positions are those of the answers.

// refAccount is an account.
type refAccount struct {
	leads    []*refLead
	phones   map[string]*refLead // by E.164, the lead that owns it
	emails   map[string]*refLead
	touches  []*refTouch           // in the order of the log
	linked   map[string][]*refLead // by visitor
	acts     []*refActivity        // in the order of the log
	refused  []refRefusal
	tokens   []*refToken
	keys     map[string]*refKey
	arrivals []*refArrival // quarantined at some time
	won      []string      // stages
}

func newRefAccount() *refAccount {
	return &refAccount{
		phones: map[string]*refLead{}, emails: map[string]*refLead{}, linked: map[string][]*refLead{},
		keys: map[string]*refKey{},
		won:  []string{"won"},
	}
}

var (
	refStages   = []string{"new", "contacted", "won", "lost", "sold"}
	selfService = []string{
		"website", "chatbot", "landing", "whatsapp", "google_form", "ai_powered_lead", "payment_page_drop",
	}
	curated = []string{"manual", "csv_import", "api", "webhook"}
)

// refLead is a lead.
type refLead struct {
	id, contact, opportunity string
	refFields
	derived              bool // the name is made of the email or phone
	source               string
	phones, emails       []string // that it has or ever had, without released ones
	visitors             map[string]bool
	history              []*refSource
	stages               []refStage
	createdAt, updatedAt time.Time
	erased               bool
	into                 *refLead // that it was joined into
}

// refFields are the values that arrivals and changes set. Empty ones are not set.
type refFields struct {
	name, phone, email, status, temperature string
	value                                   int64 // in 0.0001, -1: none
	custom                                  map[string]string
}

// refStage is a change of a lead's stage.
type refStage struct {
	at   time.Time
	name string
}

// refSource is an entry of a source history.
type refSource struct {
	source      string
	first, last time.Time
	arrivals    int
	credential  string
}

// refTouch is an arrival of a lead, or a visit by a campaign.
type refTouch struct {
	id               string // empty: not known yet
	position         int64  // 0: not known yet
	at               time.Time
	dated            bool     // at is not when it was recorded
	lead             *refLead // nil: a visit
	visitor          string
	source           string
	kind             string
	medium, campaign string
	credential       string
	erased           bool
}

type refActivity struct {
	id, visitor string
	touch       *refTouch // nil: no campaign
	forgotten   bool
}

type refRefusal struct{ source, code, lead, other, credential string }

type refToken struct {
	id, name, value string
	deleted         bool
}

// refKey is an idempotency key.
type refKey struct {
	latest differentialLine // that was sent with it
	body   string           // that it is bound to; empty: free
	answer answer
	lead   *refLead               // of the answer; nil for a refusal
	kept   map[string]*refArrival // by body, requests that were quarantined
}

// refArrival is a request that was quarantined.
type refArrival struct {
	id         string
	state      string
	receivedAt time.Time
	credential string
	request    refCapture
	errors     any        // of the answer
	leads      []*refLead // that it became, or that it conflicts with
}

// refCapture is a request to capture a lead. Contacts are canonical.
type refCapture struct {
	refFields
	source                    string // canonical
	visitor, medium, campaign string
	wrong                     bool // a field is not valid
}

// refOutcome is what a capture does.
type refOutcome struct {
	status int
	code   string
	lead   *refLead // that it merges into or conflicts with; nil: a new one
	other  *refLead // a second one that conflicts
	clash  bool     // the email belongs to another lead
}

func (l *refLead) survivor() *refLead {
	for l.into != nil {
		l = l.into
	}
	return l
}

func (l *refLead) entry(source string) *refSource {
	for _, e := range l.history {
		if e.source == source {
			return e
		}
	}
	return nil
}

// decide returns the outcome of a capture.
func (a *refAccount) decide(in refCapture) refOutcome {
	if in.wrong {
		return refOutcome{status: 400}
	}
	byPhone, byEmail := a.phones[in.phone], a.emails[in.email]
	target := byPhone
	if target == nil {
		target = byEmail
	}
	if target == nil {
		return refOutcome{status: 201}
	}
	clash := byEmail != nil && byEmail != target
	known := target.entry(in.source) != nil
	switch {
	case slices.Contains(selfService, in.source):
	case clash:
		return refOutcome{status: 409, code: "DUPLICATE_LEAD_EMAIL", lead: byEmail, other: target}
	case known && slices.Contains(curated, in.source):
		code := "DUPLICATE_LEAD_SOURCE"
		if byPhone == nil && in.phone != "" && in.phone != target.phone {
			code = "DUPLICATE_LEAD_EMAIL"
		}
		return refOutcome{status: 409, code: code, lead: target}
	}
	return refOutcome{status: 200, lead: target, clash: clash}
}

// arrive applies a capture with its outcome. At is when it was recorded, seen when it arrived.
func (a *refAccount) arrive(in refCapture, o refOutcome, at, seen time.Time, credential string) (*refLead, *refTouch) {
	l := o.lead
	kind := "merged"
	if l == nil {
		kind = "created"
		l = &refLead{
			source: in.source, createdAt: at, visitors: map[string]bool{},
			refFields: refFields{value: -1, temperature: "warm"},
		}
		a.leads = append(a.leads, l)
		l.name, l.derived = derive(in.phone, in.email), true
		in.status = cmp.Or(in.status, refStages[0])
	}
	if o.clash {
		in.email = ""
	}
	l.set(in.refFields)
	if in.status != "" {
		stageAt := at
		if kind == "created" {
			stageAt = seen
		}
		l.stages = append(l.stages, refStage{stageAt, in.status})
	}
	if in.phone != "" && a.phones[in.phone] == nil {
		a.phones[in.phone] = l
	}
	if in.email != "" && a.emails[in.email] == nil {
		a.emails[in.email] = l
	}
	l.updatedAt = at
	if e := l.entry(in.source); e == nil {
		l.history = append(l.history, &refSource{in.source, seen, seen, 1, credential})
	} else {
		e.arrivals++
		if seen.After(e.last) {
			e.last = seen
		}
	}
	if in.visitor != "" {
		a.link(l, in.visitor)
	}
	t := &refTouch{
		at: seen, dated: !seen.Equal(at), lead: l, visitor: in.visitor, source: in.source, kind: kind,
		medium: in.medium, campaign: in.campaign, credential: credential,
	}
	a.touches = append(a.touches, t)
	return l, t
}

func (a *refAccount) link(l *refLead, visitor string) {
	l.visitors[visitor] = true
	a.linked[visitor] = append(a.linked[visitor], l)
}

// derive returns the name of a lead that has none.
func derive(phone, email string) string {
	if local, _, ok := strings.Cut(email, "@"); ok {
		return local
	}
	return phone
}

// set puts values that are not empty over those of a lead.
func (l *refLead) set(f refFields) {
	if f.name != "" {
		l.name, l.derived = f.name, false
	}
	l.phone, l.email = cmp.Or(f.phone, l.phone), cmp.Or(f.email, l.email)
	l.status, l.temperature = cmp.Or(f.status, l.status), cmp.Or(f.temperature, l.temperature)
	if f.value >= 0 {
		l.value = f.value
	}
	custom := maps.Clone(l.custom)
	for key, value := range f.custom {
		if custom == nil {
			custom = map[string]string{}
		}
		custom[key] = value
	}
	l.custom = custom
	l.phones, l.emails = appendNew(l.phones, f.phone), appendNew(l.emails, f.email)
}

func appendNew(list []string, values ...string) []string {
	for _, value := range values {
		if value != "" && !slices.Contains(list, value) {
			list = append(list, value)
		}
	}
	return list
}

// changes reports whether a change by hand changes anything.
func (l *refLead) changes(f refFields, removed []string) bool {
	after := *l
	after.set(f)
	for _, key := range removed {
		if _, has := after.custom[key]; has {
			return true
		}
	}
	return after.name != l.name || after.status != l.status || after.temperature != l.temperature ||
		after.value != l.value || !maps.Equal(after.custom, l.custom)
}

// update applies a change by hand.
func (l *refLead) update(f refFields, removed []string, at time.Time) {
	l.set(f)
	for _, key := range removed {
		delete(l.custom, key)
	}
	if f.status != "" {
		l.stages = append(l.stages, refStage{at, f.status})
	}
	l.updatedAt = at
}

// release frees a phone or an email of a lead.
func (a *refAccount) release(l *refLead, phone, email string, at time.Time) {
	derived := derive(phone, email)
	if phone != "" {
		delete(a.phones, phone)
		l.phones, l.phone = without(l.phones, phone, l.phone)
	} else {
		delete(a.emails, email)
		l.emails, l.email = without(l.emails, email, l.email)
	}
	if l.derived && l.name == derived {
		l.name = derive(l.phone, l.email)
	}
	l.updatedAt = at
}

// without removes a value, and returns the current one after that: the latest, if it was the current one.
func without(list []string, gone, current string) (left []string, now string) {
	for _, value := range list {
		if value != gone {
			left = append(left, value)
		}
	}
	if current != gone {
		return left, current
	}
	if len(left) == 0 {
		return left, ""
	}
	return left, left[len(left)-1]
}

// join makes one lead part of another.
func (a *refAccount) join(into, from *refLead, at time.Time) {
	if into.derived && !from.derived {
		into.name, into.derived = from.name, false
	}
	into.phone, into.email = cmp.Or(into.phone, from.phone), cmp.Or(into.email, from.email)
	if into.value < 0 {
		into.value = from.value
	}
	into.opportunity = cmp.Or(into.opportunity, from.opportunity)
	for key, value := range from.custom {
		if into.custom == nil {
			into.custom = map[string]string{}
		}
		if _, has := into.custom[key]; !has {
			into.custom[key] = value
		}
	}
	into.phones, into.emails = appendNew(into.phones, from.phones...), appendNew(into.emails, from.emails...)
	for _, owners := range []map[string]*refLead{a.phones, a.emails} {
		for value, owner := range owners {
			if owner == from {
				owners[value] = into
			}
		}
	}
	for _, theirs := range from.history {
		theirs := *theirs
		ours := into.entry(theirs.source)
		if ours == nil {
			into.history = append(into.history, &theirs)
			continue
		}
		arrivals, last := ours.arrivals+theirs.arrivals, ours.last
		if theirs.last.After(last) {
			last = theirs.last
		}
		if theirs.first.Before(ours.first) {
			*ours = theirs
		}
		ours.arrivals, ours.last = arrivals, last
	}
	for visitor := range from.visitors {
		a.link(into, visitor)
	}
	from.into, into.updatedAt = into, at
}

// erase erases a lead with the leads that were joined into it, and forgets the visitors that no other lead is linked
// with.
func (a *refAccount) erase(l *refLead) {
	for _, part := range a.leads {
		if part.survivor() == l {
			part.erased = true
		}
	}
	for _, owners := range []map[string]*refLead{a.phones, a.emails} {
		maps.DeleteFunc(owners, func(_ string, owner *refLead) bool { return owner.erased })
	}
	for _, t := range a.touches {
		t.erased = t.erased || t.lead != nil && t.lead.erased
	}
	for visitor := range l.visitors {
		if !slices.ContainsFunc(a.linked[visitor], func(other *refLead) bool { return !other.erased }) {
			a.forget(visitor)
		}
	}
}

// act records an activity of a visitor.
func (a *refAccount) act(id, visitor string, visit *refTouch) {
	a.acts = append(a.acts, &refActivity{id: id, visitor: visitor, touch: visit})
	if visit != nil {
		a.touches = append(a.touches, visit)
	}
}

// forget forgets all activity of a visitor. It reports whether there was any.
func (a *refAccount) forget(visitor string) (found bool) {
	for _, activity := range a.acts {
		if activity.visitor != visitor || activity.forgotten {
			continue
		}
		activity.forgotten, found = true, true
		if activity.touch != nil {
			activity.touch.erased = true
		}
	}
	return found
}

// leadOf returns the lead that a touch is shown with, after joins.
func (a *refAccount) leadOf(t *refTouch) *refLead {
	switch {
	case t.erased:
		return nil
	case t.lead != nil:
		return t.lead.survivor()
	}
	for _, arrival := range a.touches { // the first arrival that links the visitor
		if arrival.lead != nil && arrival.visitor == t.visitor && !arrival.erased {
			return arrival.lead.survivor()
		}
	}
	return nil
}

// activity returns the ids of the activity of a lead's visitors.
func (a *refAccount) activity(l *refLead) (ids []string) {
	for _, activity := range a.acts {
		if l.visitors[activity.visitor] && !activity.forgotten {
			ids = append(ids, activity.id)
		}
	}
	return ids
}

// refCredit is a row of an attribution report, in units of 0.000001 conversions and 0.0001 of value.
type refCredit struct{ touches, conversions, value int64 }

// attribution divides the conversions of all leads among their touches.
func (a *refAccount) attribution(model, by string, window time.Duration, visits bool) map[string]*refCredit {
	rows := map[string]*refCredit{"": {}} // the total has no key
	row := func(key string) *refCredit {
		if rows[key] == nil {
			rows[key] = &refCredit{}
		}
		return rows[key]
	}
	for _, l := range a.leads {
		at, converted := l.converted(a.won)
		if l.into != nil || !converted {
			continue
		}
		value := max(l.value, 0)
		rows[""].conversions += 1_000_000
		rows[""].value += value
		touches := a.eligible(l, at, window, visits)
		if len(touches) == 0 {
			row("(unattributed)").conversions += 1_000_000
			row("(unattributed)").value += value
		}
		conversions, values := divide(model, 1_000_000, len(touches)), divide(model, value, len(touches))
		for i, t := range touches {
			key := map[string]string{
				"source": t.source, "medium": t.medium, "campaign": t.campaign, "credential": t.credential,
			}[by]
			credit := row(cmp.Or(key, "(none)"))
			credit.touches++
			credit.conversions += conversions[i]
			credit.value += values[i]
		}
	}
	return rows
}

// converted returns when a lead that is at a won stage came from another to one.
func (l *refLead) converted(won []string) (at time.Time, is bool) {
	for _, s := range l.stages {
		if now := slices.Contains(won, s.name); now != is {
			at, is = s.at, now
		}
	}
	return at, is
}

// eligible returns the touches of a lead that share its conversion, in order.
func (a *refAccount) eligible(l *refLead, at time.Time, window time.Duration, visits bool) (eligible []*refTouch) {
	for _, t := range a.touches {
		of := t.lead != nil && t.lead.survivor() == l || visits && t.lead == nil && l.visitors[t.visitor]
		if of && !t.at.After(at) && !t.at.Before(at.Add(-window)) {
			eligible = append(eligible, t)
		}
	}
	slices.SortStableFunc(eligible, func(x, y *refTouch) int { return x.at.Compare(y.at) })
	return eligible
}

// divide returns the shares of touches that are in order.
func divide(model string, units int64, touches int) []int64 {
	shares := make([]int64, touches)
	for i := range shares {
		switch {
		case model == "first" && i == 0, model == "last" && i == touches-1:
			shares[i] = units
		case model == "linear":
			shares[i] = units / int64(touches)
			if int64(i) < units%int64(touches) {
				shares[i]++
			}
		}
	}
	return shares
}

// rows returns a report as its answer shows it: a line for each key, and the total.
func (a *refAccount) rows(model, by string, window time.Duration, visits bool) (lines []string) {
	all := a.attribution(model, by, window, visits)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		c := all[key]
		line := fmt.Sprintf("%d.%06d %d.%04d", c.conversions/1_000_000, c.conversions%1_000_000,
			c.value/10_000, c.value%10_000)
		if key != "" {
			line = fmt.Sprintf("%s %d %s", key, c.touches, line)
		}
		lines = append(lines, line)
	}
	return lines
}
