package systemtest

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/anishathalye/porcupine"
)

// The specification of captures, erasures and joins, as a model of one family: the leads of two phones and two emails.
// It shares no code with the program.

// leadInput is a request: a capture unless do is set. Phones and emails are numbers, 0 for none.
type leadInput struct {
	family, phone, email int
	source               int    // among sources
	key                  int    // of idempotency, 0 for none; each has one body in a family
	do                   string // "erase", or "join"
	lead, from           string // ids
}

// leadOutput is its answer.
type leadOutput struct {
	unknown      bool // no answer, or 503: its effect may have happened, or may happen later
	status       int
	code, lead   string
	phone, email int // of the lead, when it is shown
}

var sources = []struct {
	name                 string
	curated, selfService bool
}{
	{"api", true, false}, {"webhook", true, false}, {"website", false, true}, {"whatsapp", false, true},
	{"facebook_ad", false, false},
}

const (
	familyKeys  = 3
	maxErasures = 6 // erasures that are requested in a family
	maxLeads    = 4 + 4*maxErasures
)

// family is the state of the model. It is comparable.
type family struct {
	phones, emails [3]int // the owner of each: index into leads, 0 for none
	leads          [maxLeads + 1]modelLead
	created        int
	keys           [familyKeys + 1]struct {
		bound  bool
		answer leadOutput
		lead   int
	}
}

type modelLead struct {
	id           string // empty until an answer names it
	phone, email int    // current phone and email
	sources      uint   // a set
	erased       bool
	into         int // surviving lead of its join
}

var leadModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		families := map[int][]porcupine.Operation{}
		for _, o := range history {
			of := o.Input.(leadInput).family
			families[of] = append(families[of], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range families {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return family{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(family).step(input.(leadInput), output.(leadOutput))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// step reports whether a request may have this answer now, and returns the next state.
func (f family) step(in leadInput, out leadOutput) (bool, family) {
	switch in.do {
	case "erase":
		return f.erase(in, out)
	case "join":
		return f.join(in, out)
	}
	expected, lead := f.keys[in.key].answer, f.keys[in.key].lead
	if in.key == 0 || !f.keys[in.key].bound {
		expected, lead = f.capture(in)
		if in.key > 0 {
			f.keys[in.key].bound, f.keys[in.key].answer, f.keys[in.key].lead = true, expected, lead
		}
	}
	if out.unknown {
		return true, f
	}
	if out.status == 410 && expected.status < 300 {
		return f.leads[f.survivor(lead)].erased, f
	}
	if expected.status < 300 && f.leads[lead].erased {
		return false, f
	}
	if expected.lead = out.lead; expected != out {
		return false, f
	}
	for other := range f.leads {
		if f.leads[other].id == out.lead && other != lead {
			return false, f
		}
	}
	if f.leads[lead].id == "" {
		f.leads[lead].id = out.lead
	}
	return f.leads[lead].id == out.lead, f
}

// capture applies a capture, and returns the answer and the lead that it names.
func (f *family) capture(in leadInput) (leadOutput, int) {
	byPhone, byEmail := f.phones[in.phone], f.emails[in.email]
	target := byPhone
	if target == 0 {
		target = byEmail
	}
	if target == 0 {
		f.created++
		target = f.created
		f.leads[target] = modelLead{phone: in.phone, email: in.email, sources: 1 << in.source}
		f.own(in, target)
		return f.shown(201, target), target
	}
	source, lead := sources[in.source], &f.leads[target]
	known := lead.sources&(1<<in.source) != 0
	clash := byEmail != 0 && byEmail != target
	switch {
	case source.selfService:
	case clash:
		return leadOutput{status: 409, code: "DUPLICATE_LEAD_EMAIL"}, byEmail
	case known && source.curated && byPhone == 0 && in.phone != 0:
		return leadOutput{status: 409, code: "DUPLICATE_LEAD_EMAIL"}, target
	case known && source.curated:
		return leadOutput{status: 409, code: "DUPLICATE_LEAD_SOURCE"}, target
	}
	lead.sources |= 1 << in.source
	if in.phone != 0 {
		lead.phone = in.phone
	}
	if in.email != 0 && !clash {
		lead.email = in.email
	}
	f.own(in, target)
	return f.shown(200, target), target
}

// own gives a lead the phone and email that have no owner.
func (f *family) own(in leadInput, lead int) {
	if in.phone != 0 && f.phones[in.phone] == 0 {
		f.phones[in.phone] = lead
	}
	if in.email != 0 && f.emails[in.email] == 0 {
		f.emails[in.email] = lead
	}
}

func (f *family) shown(status, lead int) leadOutput {
	return leadOutput{status: status, phone: f.leads[lead].phone, email: f.leads[lead].email}
}

// randomInput returns a request of a family. The same key has the same body.
func randomInput(family int) leadInput {
	in := leadInput{family: family, key: max(0, rand.IntN(4*familyKeys)-3*familyKeys+1)}
	draw := rand.IntN
	if in.key > 0 {
		draw = rand.New(rand.NewPCG(uint64(family), uint64(in.key))).IntN
	}
	for in.phone == 0 && in.email == 0 {
		in.phone, in.email = draw(3), draw(3)
	}
	in.source = draw(len(sources))
	return in
}

func (in leadInput) phoneText() string { return fmt.Sprintf("+91700%06d%d", in.family, in.phone) }

func (in leadInput) emailText() string { return fmt.Sprintf("f%d-%d@example.com", in.family, in.email) }

func (in leadInput) request() request {
	switch in.do {
	case "erase":
		return request{method: "DELETE", path: leadsPath + "/" + in.lead}
	case "join":
		return request{
			method: "POST", path: leadsPath + "/" + in.lead + "/join", body: fmt.Sprintf(`{"from":%q}`, in.from),
		}
	}
	body := fmt.Sprintf(`"metadata":{"source":%q}`, sources[in.source].name)
	if in.phone != 0 {
		body += fmt.Sprintf(`,"phone":%q`, in.phoneText())
	}
	if in.email != 0 {
		body += fmt.Sprintf(`,"email":%q`, in.emailText())
	}
	r := request{method: "POST", path: leadsPath, body: "{" + body + "}"}
	if in.key > 0 {
		r.key = fmt.Sprintf("family-%d-%d", in.family, in.key)
	}
	return r
}

var ulidText = regexp.MustCompile(`[0-9A-HJKMNP-TV-Z]{26}`)

// outcome parses an answer.
func (in leadInput) outcome(got answer) leadOutput {
	out := leadOutput{status: got.status}
	out.code, _ = got.body["code"].(string)
	if got.status == 409 {
		message, _ := got.body["message"].(string)
		out.lead = ulidText.FindString(message)
		return out
	}
	out.lead, _ = got.data()["leadId"].(string)
	for n := 1; n <= 2; n++ {
		if value := (leadInput{family: in.family, phone: n, email: n}); got.data()["phone"] == value.phoneText() {
			out.phone = n
		}
		if value := (leadInput{family: in.family, phone: n, email: n}); got.data()["email"] == value.emailText() {
			out.email = n
		}
	}
	return out
}

// knownLeads are the leads in the answers of a family, including erased ones.
type knownLeads struct {
	mu       sync.Mutex
	ids      []string
	erasures int
}

func (k *knownLeads) add(out leadOutput) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if out.lead != "" && !slices.Contains(k.ids, out.lead) {
		k.ids = append(k.ids, out.lead)
	}
}

// next returns mostly captures, and otherwise erasures and joins of leads in recent answers.
func (k *knownLeads) next(family int) leadInput {
	k.mu.Lock()
	defer k.mu.Unlock()
	recent := slices.Clone(k.ids[max(0, len(k.ids)-4):])
	rand.Shuffle(len(recent), func(i, j int) { recent[i], recent[j] = recent[j], recent[i] })
	switch n := rand.IntN(12); {
	case n == 0 && len(recent) > 0 && k.erasures < maxErasures:
		k.erasures++
		return leadInput{family: family, do: "erase", lead: recent[0]}
	case n < 3 && len(recent) > 1:
		return leadInput{family: family, do: "join", lead: recent[0], from: recent[1]}
	}
	return randomInput(family)
}

// isLeadJoined reports whether an answer says that a lead was joined into another.
func (out leadOutput) isLeadJoined() bool { return out.status == 409 && out.code == "LEAD_JOINED" }

func (f *family) named(id string) int {
	return slices.IndexFunc(f.leads[:], func(l modelLead) bool { return l.id == id })
}

// survivor returns the final surviving lead of a lead's joins, or the lead itself if it was not joined.
func (f *family) survivor(lead int) int {
	for f.leads[lead].into != 0 {
		lead = f.leads[lead].into
	}
	return lead
}

// erasedWithSurvivor reports whether a lead was joined into an erased lead. Such a lead is also erased, but some time
// later.
func (f *family) erasedWithSurvivor(lead int) bool {
	return f.leads[lead].into != 0 && f.leads[f.survivor(lead)].erased
}

// erase applies an erasure.
func (f family) erase(in leadInput, out leadOutput) (bool, family) {
	lead := f.named(in.lead)
	switch {
	case lead < 0:
		return false, f // no answer has this id
	case f.erasedWithSurvivor(lead):
		return out.unknown || out.status == 200 || out.status == 404, f
	case f.leads[lead].into != 0:
		return out.unknown || out.isLeadJoined(), f
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

// join applies a join.
func (f family) join(in leadInput, out leadOutput) (bool, family) {
	into, from := f.named(in.lead), f.named(in.from)
	if into < 0 || from < 0 {
		return false, f
	}
	answers := func(expected leadOutput, lead int) (bool, family) {
		if expected.lead = f.leads[lead].id; expected.lead == "" { // no earlier answer has the id
			expected.lead, f.leads[lead].id = out.lead, out.lead
		}
		return out.unknown || expected == out, f
	}
	switch last := f.survivor(from); {
	case f.leads[into].erased, f.erasedWithSurvivor(into):
		return out.unknown || out.status == 404, f
	case last != from && (f.leads[from].into == into || last == into): // a repeat
		return answers(f.shown(200, last), last)
	case f.leads[into].into != 0:
		return out.unknown || out.isLeadJoined(), f
	case f.leads[from].erased, f.erasedWithSurvivor(from):
		return out.unknown || out.status == 404, f
	case last != from:
		return out.unknown || out.isLeadJoined(), f
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

// The specification of API tokens, as a model of one account: at most five, each with one valid value, until the token
// is rotated or deleted.

// tokenInput is a request: create, rotate, delete, or the use of a value.
type tokenInput struct{ account, do, token, value string }

// tokenOutput is its answer.
type tokenOutput struct {
	unknown      bool // no answer, or 503: its effect may have happened, or may happen later
	status       int
	token, value string
}

// accountTokens are the tokens of an account that are not deleted. It is comparable.
type accountTokens struct {
	count int
	held  [5]heldToken
}

// heldToken has no id when its creation was not answered, and no value when its last rotation was not.
type heldToken struct{ id, value string }

var tokenModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		accounts := map[string][]porcupine.Operation{}
		for _, o := range history {
			of := o.Input.(tokenInput).account
			accounts[of] = append(accounts[of], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range accounts {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return accountTokens{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(accountTokens).step(input.(tokenInput), output.(tokenOutput))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// step reports whether a request may have this answer now, and returns the next state.
func (a accountTokens) step(in tokenInput, out tokenOutput) (bool, accountTokens) {
	at := slices.IndexFunc(a.held[:a.count], func(h heldToken) bool {
		return in.do == "use" && h.value == in.value && in.value != "" || in.token != "" && h.id == in.token
	})
	status := 200
	switch {
	case in.do == "create" && a.count == len(a.held):
		status = 409
	case in.do == "create":
		status = 201
		a.held[a.count] = heldToken{out.token, out.value}
		a.count++
	case in.do == "use" && at < 0:
		status = 401
	case at < 0:
		status = 404
	case in.do == "rotate":
		a.held[at].value = out.value
	case in.do == "delete":
		a.count--
		a.held[at] = a.held[a.count]
		a.held[a.count] = heldToken{}
	}
	slices.SortFunc(a.held[:a.count], func(x, y heldToken) int { return strings.Compare(x.id+x.value, y.id+y.value) })
	return out.unknown || out.status == status, a
}

func (in tokenInput) request() request {
	const tokens = tokensPath + "/"
	switch in.do {
	case "create":
		return request{method: "POST", path: tokensPath, body: `{"name":"one of many","expiresInDays":30}`}
	case "rotate":
		return request{method: "POST", path: tokens + in.token + "/rotate"}
	case "delete":
		return request{method: "DELETE", path: tokens + in.token}
	}
	return request{
		method: "POST", path: leadsPath, bearer: in.value,
		body: `{"email":"used@example.com","metadata":{"source":"website"}}`,
	}
}

func (in tokenInput) outcome(got answer) tokenOutput {
	out := tokenOutput{status: got.status}
	if in.do == "use" && out.status == 201 {
		out.status = 200
	}
	if in.do == "create" || in.do == "rotate" {
		out.token, _ = got.data()["tokenId"].(string)
		out.value, _ = got.data()["plainToken"].(string)
	}
	return out
}
