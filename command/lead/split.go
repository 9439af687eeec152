package lead

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// maxSplitTouches bounds how many arrivals a split moves, because its events name them.
const maxSplitTouches = 5000

// SplitRequest names what leaves a lead: exactly one of these is set.
type SplitRequest struct {
	Touches []string // ids of the events of arrivals
	Phone   string   // in E.164; every arrival that had it, and the phone
	Email   string   // likewise
	Lead    string   // id of a lead that was joined into this one
}

// ParseSplit reads from a body what is to leave a lead. The error is field.Errors.
func ParseSplit(body map[string]jsontext.Value, rules Rules) (SplitRequest, error) {
	r := reader{body: body}
	field.Only(&r.wrong, "", body, "touches", "phone", "email", "lead")
	request := SplitRequest{Phone: r.phone(rules), Email: r.email(rules)}
	request.Lead, _ = r.text("lead")
	if r.present("touches") {
		ids, ok := texts(body["touches"])
		switch {
		case !ok || len(ids) == 0:
			r.wrong.Add("touches", "must be a list of ids of touches")
		case len(ids) > maxSplitTouches:
			r.wrong.Add("touches", "must be at most 5000")
		}
		request.Touches = ids
	}
	given := 0
	for _, is := range []bool{r.present("touches"), r.present("phone"), r.present("email"), r.present("lead")} {
		if is {
			given++
		}
	}
	if given != 1 && r.wrong == nil {
		r.wrong.Add("body", "must have exactly one of touches, phone, email and lead")
	}
	return request, r.wrong.Err()
}

// Split is a decided split. Before the claims of the lead that leaves are moved, each belongs to the lead that stays.
type Split struct {
	Stays, Leaves event.LeadSplit
	LeavesID      string
}

// Split decides that some arrivals of a lead are another person's, or that a join is undone. History has the events of
// all streams that may have arrivals of the lead, in the order of the log. The lead that leaves gets new ids, unless a
// join is undone; both get an opportunity of their own if they have a value.
//
// The error is ErrNotFound, a *JoinedError or field.Errors.
func (s State) Split(
	account string, request SplitRequest, history []event.Fact, rules Rules, ids NewIDs, opportunity string,
) (Split, error) {
	if err := s.Present(account); err != nil {
		return Split{}, err
	}
	d := newDivision(s, history, rules)
	moved, wrong := d.moved(request)
	if wrong != nil {
		return Split{}, field.Errors{*wrong}
	}
	moves := func(id string) bool { return moved[id] }
	remains := func(id string) bool { return d.owner[id] == s.ID && !moved[id] }
	leavesID, joined := ids.Lead, []string(nil)
	if request.Lead != "" {
		leavesID, joined = request.Lead, d.joinOf(request.Lead).Joined
	}
	gone := append([]string{leavesID}, joined...)
	stillJoined := slices.DeleteFunc(slices.Clone(s.Joined), func(id string) bool { return slices.Contains(gone, id) })
	stays, leaves := d.fold(s.ID, stillJoined, remains, true), side{}
	if request.Lead != "" {
		leaves = d.fold(leavesID, joined, moves, false)
		leaves.lead.dated(d.joinOf(request.Lead).Was.CreatedAt)
		leaves.lead.ContactUID = d.joinOf(request.Lead).Was.ContactUID
	} else {
		leaves = d.fold(s.ID, nil, moves, false)
		leaves.lead.ContactUID = ids.Contact
	}
	field := request.field()
	if stays.lead.Phase != Live || leaves.lead.Phase != Live {
		return Split{}, oneError(field, "must leave the lead at least one arrival, and take at least one")
	}
	d.share(&stays.lead, &leaves.lead)
	for _, of := range []*State{&stays.lead, &leaves.lead} {
		if len(of.Phones)+len(of.Emails) == 0 {
			return Split{}, oneError(field, "must leave each lead a phone or email of its own")
		}
	}
	stays.lead.Joined = stillJoined
	stays.lead.dated(s.CreatedAt)
	stays.lead.ContactUID, stays.lead.Origins = s.ContactUID, s.Origins
	stays.lead.Consents = d.consents(append([]string{s.ID}, stillJoined...), remains, true)
	leaves.lead.Consents = d.consents(gone, moves, false)
	stays.lead.OpportunityID = orNew(stays.lead, s.OpportunityID, opportunity)
	leaves.lead.Joined = joined
	leaves.lead.OpportunityID = orNew(leaves.lead, d.joinOf(request.Lead).Was.OpportunityID, ids.Opportunity)
	leaves.lead.Origins = d.origins(leavesID, leaves.lead.Origins, joined, moved)
	split := Split{LeavesID: leavesID}
	touches, arrivals := d.touches(moved)
	split.Stays = event.LeadSplit{Into: leavesID, Undone: request.Lead != "", Touches: touches, Arrivals: arrivals}
	split.Leaves = event.LeadSplit{From: s.ID, Undone: request.Lead != "", Touches: touches, Arrivals: arrivals}
	stays.state(&split.Stays, s.Consents)
	leaves.state(&split.Leaves, d.joinOf(request.Lead).Was.Consents)
	claims := movedClaim * (len(leaves.lead.Phones) + len(leaves.lead.Emails))
	if encodedSize(split.Stays)+encodedSize(split.Leaves)+claims > maxJoined {
		return Split{}, oneError(field, "is too much for one split: the data of both leads must be at most 700 KiB")
	}
	return split, nil
}

func oneError(name, message string) error { return field.Errors{{Field: name, Message: message}} }

// field returns the name of the member of the request that is set.
func (r SplitRequest) field() string {
	switch {
	case r.Phone != "":
		return "phone"
	case r.Email != "":
		return "email"
	case r.Lead != "":
		return "lead"
	}
	return "touches"
}

// orNew returns the id of a lead's opportunity: the one that it had, or a new one; empty without a value.
func orNew(s State, had, id string) string {
	switch {
	case s.OpportunityValue == "":
		return ""
	case had != "":
		return had
	}
	return id
}

// state sets the state of a lead, which had these consents before.
func (s *side) state(into *event.LeadSplit, had map[string]event.ConsentState) {
	into.Joined, into.Origins, into.Is = s.lead.Joined, s.lead.Origins, s.lead.snapshot()
	into.Status, into.StatusAt, into.OpportunityValue = s.lead.Status, s.statusAt, s.lead.OpportunityValue
	into.Purposes = changedConsents(had, s.lead.Consents)
}

// split replaces the lead by what it is from a split on.
func (s *State) split(fact *event.Fact, data *event.LeadSplit) {
	is := &data.Is
	*s = State{
		Phase: Live, ID: event.LeadID(fact.Stream), Account: fact.Metadata.Account, Revision: s.Revision,
		ContactUID: is.ContactUID, LeadFields: is.LeadFields, NameDerived: is.NameDerived, Phones: is.Phones,
		Emails: is.Emails, FirstSeen: is.FirstSeen, Source: is.Source, Metadata: is.Metadata, VisitorIDs: is.VisitorIDs,
		Joined: data.Joined, Origins: data.Origins,
		Consents:  is.Consents,
		CreatedAt: is.CreatedAt, UpdatedAt: fact.At,
	}
	for _, entry := range is.Sources {
		s.Sources = append(s.Sources, SourceEntry(entry))
	}
}

// dated sets when the lead was created. When its contacts came first does not change.
func (s *State) dated(created time.Time) {
	phones, emails := s.Contacts()
	s.CreatedAt, s.FirstSeen = created, nil
	for i, phone := range s.Phones {
		s.see(phones[i].FirstSeenAt, []string{phone}, nil)
	}
	for i, email := range s.Emails {
		s.see(emails[i].FirstSeenAt, nil, []string{email})
	}
}

// side is one of the leads of a split while it is folded. Before its first arrival the lead is not created, and has
// what was changed by hand.
type side struct {
	lead     State
	statusAt time.Time
}

// division divides the arrivals of a lead.
type division struct {
	of      State
	history []event.Fact
	rules   Rules
	owner   map[string]string // by the event of an arrival: the lead that has it
	// index of the split that restates the lead because earlier events cannot be read; -1: all can
	base int
}

func newDivision(of State, history []event.Fact, rules Rules) division {
	d := division{of: of, history: history, rules: rules, owner: map[string]string{}, base: -1}
	held := map[string][]string{}
	lost := false
	for i, fact := range history {
		on := event.LeadID(fact.Stream)
		switch data := fact.Data.(type) {
		case event.LeadCreated, event.LeadMerged:
			id := fact.ID.String()
			d.owner[id], held[on] = on, append(held[on], id)
		case event.LeadJoined:
			for _, id := range held[data.From] {
				d.owner[id] = on
			}
			held[on] = append(held[on], held[data.From]...)
			delete(held, data.From)
		case event.LeadSplit:
			if data.Into == "" {
				break
			}
			for _, id := range data.Touches {
				d.owner[id] = data.Into
			}
			held[data.Into] = append(held[data.Into], data.Touches...)
			held[on] = slices.DeleteFunc(held[on], func(id string) bool { return d.owner[id] != on })
		}
		if on == of.ID {
			if _, split := fact.Data.(event.LeadSplit); split && !fact.Erased && lost {
				d.base, lost = i, false
			}
			lost = lost || fact.Erased
		}
	}
	return d
}

// moved returns the arrivals that leave, by the ids of their events.
func (d *division) moved(request SplitRequest) (moved map[string]bool, wrong *field.Error) {
	moved = map[string]bool{}
	refuse := func(message string) (map[string]bool, *field.Error) {
		return nil, &field.Error{Field: request.field(), Message: message}
	}
	joins := func(string, event.LeadFields) bool { return false }
	if request.Lead != "" {
		var ok bool
		if joins, ok = d.ofJoined(request.Lead); !ok {
			return refuse("is not a lead that was joined into this one")
		}
	}
	named := map[string]bool{}
	for _, id := range request.Touches {
		named[id] = true
	}
	for i, fact := range d.history {
		id := fact.ID.String()
		fields, arrives := arrivalFields(fact.Data)
		if !arrives || d.owner[id] != d.of.ID {
			continue
		}
		is := named[id] || request.Phone != "" && contact.FoldPhone(fields.Phone) == contact.FoldPhone(request.Phone) ||
			request.Email != "" && fields.Email == request.Email || joins(id, fields)
		if !is {
			continue
		}
		if i <= d.base || fact.Erased {
			return refuse("is of before an erasure, and cannot be told apart any more")
		}
		moved[id] = true
	}
	switch {
	case len(request.Touches) > 0 && len(moved) < len(named):
		return refuse("must be arrivals that this lead has")
	case request.Phone != "" && !slices.Contains(d.of.Phones, contact.FoldPhone(request.Phone)),
		request.Email != "" && !slices.Contains(d.of.Emails, request.Email):
		return refuse(notOfThisLead)
	case len(moved) == 0:
		return refuse("must be of an arrival that this lead has")
	case len(moved) > maxSplitTouches:
		return refuse("must be of at most 5000 arrivals")
	}
	return moved, nil
}

func arrivalFields(data event.Data) (fields event.LeadFields, arrives bool) {
	switch data := data.(type) {
	case event.LeadCreated:
		return data.LeadFields, true
	case event.LeadMerged:
		return data.LeadFields, true
	}
	return fields, false
}

// ofJoined returns which arrivals belong to a lead that was joined into this one: its own, and those since the join
// that a capture would have given to it. Ok is false if it is no part of this lead, or of one that is joined into this
// one.
func (d *division) ofJoined(lead string) (belongs func(id string, fields event.LeadFields) bool, ok bool) {
	var was event.LeadJoined
	own := map[string]bool{}
	owner := map[string]string{}
	for _, fact := range d.history { // as of the last join
		on := event.LeadID(fact.Stream)
		if _, arrives := arrivalFields(fact.Data); arrives {
			owner[fact.ID.String()] = on
			continue
		}
		switch data := fact.Data.(type) {
		case event.LeadJoined:
			if on == d.of.ID && data.From == lead {
				was, ok = data, !fact.Erased
				clear(own)
			}
			for id, of := range owner {
				if of == data.From {
					owner[id] = on
					own[id] = own[id] || on == d.of.ID && data.From == lead
				}
			}
		case event.LeadSplit:
			if data.Into != "" {
				for _, id := range data.Touches {
					owner[id] = data.Into
				}
			}
		}
	}
	if !ok || !slices.Contains(d.of.Joined, lead) {
		return nil, false
	}
	since := false
	later := map[string]bool{}
	for _, fact := range d.history {
		if data, is := fact.Data.(event.LeadJoined); is && event.LeadID(fact.Stream) == d.of.ID && data.From == lead {
			since = true
			clear(later)
		}
		if since {
			later[fact.ID.String()] = true
		}
	}
	return func(id string, fields event.LeadFields) bool {
		if own[id] {
			return true
		}
		phone := contact.FoldPhone(fields.Phone)
		switch {
		case !later[id]:
			return false
		case phone != "" && slices.Contains(was.Was.Phones, phone):
			return true
		case phone != "" && slices.Contains(d.of.Phones, phone) && !d.cameWith(was, phone):
			return false
		}
		return fields.Email != "" && slices.Contains(was.Was.Emails, fields.Email)
	}, true
}

// cameWith reports whether a phone came to this lead only after a join, and so may be of the lead that was joined.
func (d *division) cameWith(join event.LeadJoined, phone string) bool {
	before := true
	for _, fact := range d.history {
		if data, is := fact.Data.(event.LeadJoined); is && event.LeadID(fact.Stream) == d.of.ID &&
			data.From == join.From {
			before = false
		}
		fields, arrives := arrivalFields(fact.Data)
		if arrives && before && contact.FoldPhone(fields.Phone) == phone {
			return false
		}
	}
	return true
}

// joinOf returns the last join of a lead into this one; zero for none.
func (d *division) joinOf(lead string) (join event.LeadJoined) {
	for _, fact := range d.history {
		if data, is := fact.Data.(event.LeadJoined); is && lead != "" && event.LeadID(fact.Stream) == d.of.ID &&
			data.From == lead {
			join = data
		}
	}
	return join
}

// fold folds the events that a lead has: its arrivals, and the changes by hand of it and of the leads that are part of
// it. Of the lead that stays, a base replaces all that is earlier.
func (d *division) fold(id string, joined []string, has func(event string) bool, stays bool) side {
	byHand := append([]string{id}, joined...)
	if !stays && id == d.of.ID { // a new lead has none
		byHand = nil
	}
	parts := append([]string{id}, joined...)
	if !stays && id == d.of.ID {
		parts = append(parts, d.of.Joined...)
	}
	leads := map[string]*side{}
	start := 0
	if stays && d.base >= 0 {
		start = d.base + 1
		fact := d.history[d.base]
		data, _ := fact.Data.(event.LeadSplit)
		leads[d.of.ID] = &side{Evolve(State{}, fact), data.StatusAt}
	}
	for _, fact := range d.history[start:] {
		on := event.LeadID(fact.Stream)
		switch data := fact.Data.(type) {
		case event.LeadCreated:
			if has(fact.ID.String()) && !fact.Erased {
				d.arrive(leads, on, fact, data)
			}
		case event.LeadMerged:
			if !has(fact.ID.String()) || fact.Erased {
				break
			}
			if !leads[on].arrived() {
				d.arrive(leads, on, fact, d.begin(data, leads[on]))
				break
			}
			leads[on].apply(fact, data.Status)
		case event.LeadUpdated:
			if fact.Erased || !slices.Contains(byHand, on) {
				break
			}
			if leads[on] == nil {
				leads[on] = &side{lead: State{NameDerived: true}}
			}
			leads[on].apply(fact, data.Status)
		case event.LeadReleased:
			if leads[on].arrived() && !fact.Erased && slices.Contains(byHand, on) {
				leads[on].release(fact, data)
			}
		case event.LeadJoined:
			d.join(leads, on, data.From, fact)
		case event.LeadSplit:
			// What came to the lead before it left another one. A lead that is part of this one comes with its join.
			if data.From != "" && !slices.Contains(parts, data.From) {
				d.join(leads, on, data.From, fact)
			}
		}
	}
	return d.whole(leads, id)
}

// whole returns a lead with all that was folded for it, on whatever streams.
func (d *division) whole(leads map[string]*side, id string) side {
	order := slices.SortedFunc(maps.Keys(leads), func(a, b string) int {
		rank := func(lead string) int {
			switch lead {
			case id:
				return 0
			case d.of.ID:
				return 1
			}
			return 2
		}
		return cmp.Or(rank(a)-rank(b), leads[a].lead.CreatedAt.Compare(leads[b].lead.CreatedAt), cmp.Compare(a, b))
	})
	if len(order) == 0 {
		return side{}
	}
	for _, other := range order[1:] {
		d.join(leads, order[0], other, event.Fact{At: leads[order[0]].lead.UpdatedAt})
	}
	return *leads[order[0]]
}

// arrived reports whether the side has an arrival.
func (s *side) arrived() bool { return s != nil && s.lead.Phase == Live }

// apply folds a fact that changes a lead.
func (s *side) apply(fact event.Fact, status string) {
	if status != "" && status != s.lead.Status {
		s.statusAt = fact.At
	}
	s.lead = Fold(s.lead, fact)
}

// release folds a release as far as the contact is one of the lead.
func (s *side) release(fact event.Fact, data event.LeadReleased) {
	s.lead.drop(data.Phone, data.Email)
	s.lead.active(&fact, fact.At)
}

// drop takes a phone or email from a lead, as a release does.
func (s *State) drop(phone, email string) {
	released := event.LeadReleased{Phone: phone, Email: email}
	s.fillAfter(&released)
	s.release(&event.Fact{At: s.UpdatedAt}, &released)
}

// arrive begins a lead with its first arrival.
func (d *division) arrive(leads map[string]*side, on string, fact event.Fact, created event.LeadCreated) {
	fact.Data = created
	statusAt := created.SeenAt(fact.At)
	if byHand := leads[on]; byHand != nil && byHand.lead.Status == created.Status {
		statusAt = byHand.statusAt
	}
	leads[on] = &side{Evolve(State{}, fact), statusAt}
}

// begin returns the creation of a lead whose first arrival merged into another. What was changed by hand before it
// stays, unless the arrival has a value; byHand is nil for nothing.
func (d *division) begin(merged event.LeadMerged, byHand *side) event.LeadCreated {
	var begun State
	if byHand != nil {
		begun = byHand.lead
	}
	begun.set(&merged.LeadFields)
	created := event.LeadCreated{
		LeadFields: begun.LeadFields, Source: merged.Source, Metadata: merged.Metadata, IP: merged.IP,
		UserAgent: merged.UserAgent, VisitorID: merged.VisitorID, Changed: merged.Changed, Purposes: merged.Purposes,
		ArrivalRef: merged.ArrivalRef,
	}
	if created.Name == "" {
		created.Name, created.NameDerived = derivedName(Arrival{LeadFields: merged.LeadFields}), true
	}
	if created.Status == "" {
		created.Status = d.rules.Stages[0]
	}
	if created.Temperature == "" {
		created.Temperature = defaultTemperature
	}
	return created
}

// join makes one lead part of another, as a join does. What was changed by hand of a lead without an arrival stays.
func (d *division) join(leads map[string]*side, into, from string, fact event.Fact) {
	joins := leads[from]
	delete(leads, from)
	switch target := leads[into]; {
	case joins == nil:
	case target == nil:
		leads[into] = joins
	case !target.arrived() && joins.arrived():
		if target.lead.Status != "" {
			joins.statusAt = target.statusAt
		}
		joins.lead.set(&target.lead.LeadFields)
		leads[into] = joins
	default:
		if target.lead.Status == "" {
			target.statusAt = joins.statusAt
		}
		target.lead.join(&fact, &event.LeadJoined{From: from, Was: joins.lead.snapshot()})
	}
}

// share divides the contacts that the lead has now: one that both sides have stays, and so does one that neither has.
// What the lead has released is of neither.
func (d *division) share(stays, leaves *State) {
	for _, of := range []*State{stays, leaves} {
		for _, phone := range slices.Clone(of.Phones) {
			if !slices.Contains(d.of.Phones, phone) || of == leaves && slices.Contains(stays.Phones, phone) {
				of.drop(phone, "")
			}
		}
		for _, email := range slices.Clone(of.Emails) {
			if !slices.Contains(d.of.Emails, email) || of == leaves && slices.Contains(stays.Emails, email) {
				of.drop("", email)
			}
		}
	}
	for _, phone := range d.of.Phones {
		if !slices.Contains(leaves.Phones, phone) {
			stays.addContacts(d.of.firstSeen(phone), phone, "")
		}
	}
	for _, email := range d.of.Emails {
		if !slices.Contains(leaves.Emails, email) {
			stays.addContacts(d.of.firstSeen(email), "", email)
		}
	}
}

// touches returns the arrivals that leave in the order of the log, and those of them that have streams of their own.
func (d *division) touches(moved map[string]bool) (touches, arrivals []string) {
	for _, fact := range d.history {
		if !moved[fact.ID.String()] {
			continue
		}
		touches = append(touches, fact.ID.String())
		var kept event.ArrivalRef
		switch data := fact.Data.(type) {
		case event.LeadCreated:
			kept = data.ArrivalRef
		case event.LeadMerged:
			kept = data.ArrivalRef
		}
		if kept.ArrivalID != "" {
			arrivals = append(arrivals, kept.ArrivalID)
		}
	}
	return touches, arrivals
}

// origins returns where else data of the lead that leaves are: on the stream of the lead that stays, and on those of
// all other leads that ever had its arrivals, up to the split that restated each without them.
func (d *division) origins(
	leaves string, before []event.SplitOrigin, joined []string, moved map[string]bool,
) []event.SplitOrigin {
	const open = -1 // all events so far
	owner, ends, lengths := map[string]string{}, map[string]int64{}, map[string]int64{}
	give := func(id, lead string) { owner[id], ends[lead] = lead, open }
	for _, fact := range d.history {
		on := event.LeadID(fact.Stream)
		switch data := fact.Data.(type) {
		case event.LeadCreated, event.LeadMerged:
			if id := fact.ID.String(); moved[id] {
				give(id, on)
			}
		case event.LeadJoined:
			for id, of := range owner {
				if of == data.From {
					give(id, on)
				}
			}
		case event.LeadSplit:
			for _, id := range data.Touches {
				if moved[id] && data.Into != "" {
					give(id, data.Into)
				}
			}
			if ends[on] == open && !slices.Contains(slices.Collect(maps.Values(owner)), on) {
				ends[on] = lengths[on]
			}
		}
		lengths[on]++
	}
	origins := withOrigins(before, []event.SplitOrigin{{LeadID: d.of.ID, Before: d.of.Revision + 1}})
	for _, lead := range slices.Sorted(maps.Keys(ends)) {
		if lead == leaves || lead == d.of.ID || slices.Contains(joined, lead) {
			continue
		}
		end := ends[lead]
		if end == open {
			end = lengths[lead]
		}
		origins = withOrigins(origins, []event.SplitOrigin{{LeadID: lead, Before: end}})
	}
	return origins
}

// withOrigins adds origins to a list: of one lead the later end counts.
func withOrigins(list, more []event.SplitOrigin) []event.SplitOrigin {
	for _, origin := range more {
		i := slices.IndexFunc(list, func(has event.SplitOrigin) bool { return has.LeadID == origin.LeadID })
		switch {
		case i < 0:
			list = append(slices.Clip(list), origin)
		case list[i].Before < origin.Before:
			list = slices.Clone(list)
			list[i] = origin
		}
	}
	return list
}

// Moves returns the contacts that the lead that leaves takes along, by kind.
func (s Split) Moves() map[claim.Kind][]string {
	return map[claim.Kind][]string{claim.Phone: s.Leaves.Is.Phones, claim.Email: s.Leaves.Is.Emails}
}

func encodedSize(data event.Data) int {
	_, encoded, err := event.Encode(data)
	if err != nil { // cannot happen: all of it was on the log before
		return 0
	}
	return len(encoded)
}
