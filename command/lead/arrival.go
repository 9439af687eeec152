package lead

import (
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Limits of an arrival. Characters are Unicode code points after NFC.
const (
	MaxName          = 200
	MaxVisitorID     = 200
	MaxMetadataKeys  = 64
	MaxMetadataBytes = 32 << 10 // as compact JSON
	MaxUserAgent     = 1 << 10  // bytes; a longer one is cut
)

// Keys of metadata that have a meaning.
const (
	keySource    = "source"
	keyIP        = "ip"
	keyUserAgent = "userAgent"
)

// temperatures are the values of leadTemperature; a new lead that gives none is warm.
var temperatures = []string{"hot", "warm", "cold"}

// Temperatures returns every temperature that a lead can have.
func Temperatures() []string { return slices.Clone(temperatures) }

const defaultTemperature = "warm"

// Rules are the settings of the account that an arrival is read by.
type Rules struct {
	Region      string
	Stages      []string        // first to last; never empty
	Ignored     contact.Ignored // contacts that are taken as absent
	SharedAfter int             // 0: never
	From        contact.Source  // where the body comes from
	OwnSource   bool            // the source that the body names counts, as in that of a call
	// MergeDuplicates merges an arrival where its source would have it refused.
	MergeDuplicates bool
}

// RulesOf returns the rules of an account for bodies from a source.
func RulesOf(settings account.State, from contact.Source) Rules {
	return Rules{
		Region: settings.Region, Stages: settings.Stages, Ignored: settings.IgnoredContacts,
		SharedAfter: settings.SharedAfter, From: from,
	}
}

// Client is where the request came from, in valid UTF-8. It is used when the arrival's metadata name no IP address or
// user agent.
type Client struct{ IP, UserAgent string }

// Arrival is a parsed capture, valid and normalized. An empty field was not given.
type Arrival struct {
	event.LeadFields
	UnknownStatus string // given, but not a stage of the account; only a lead that is at this stage may keep it
	Source        string // canonical, never empty
	Metadata      map[string]jsontext.Value
	IP            string
	UserAgent     string
	VisitorID     string
	Consents      []GivenConsent   // which the metadata have too
	Ref           event.ArrivalRef // zero for most
	Visitor       string           // the visitor's stream; the caller sets it
	Warnings      field.Warnings   // what was taken in another way than its sender most likely meant
}

// Aliases of a field, first present wins.
var (
	nameAliases    = []string{"name", "contactName", "contact_name", "fullName", "full_name"}
	visitorAliases = []string{"visitorId", "visitor_id"}
	// customAliases is also the order of precedence when a key is given more than once.
	customAliases = []string{"customFields", "industryData", "fields"}
)

// NameAliases returns the members of a body that can have the name. The first present one counts.
func NameAliases() []string { return slices.Clone(nameAliases) }

// ParseArrival reads the members of a request body, as Members gives them. The error is field.Errors with everything
// that is wrong.
func ParseArrival(body map[string]jsontext.Value, rules Rules, client Client) (Arrival, error) {
	custom := reader{body: body}
	r := reader{body: body, given: custom.customFields()}
	var a Arrival
	for _, field := range fields {
		if field.read != nil {
			*field.of(&a.LeadFields) = field.read(&r, rules)
		}
	}
	a.Phone = r.unlessIgnored("phone", a.Phone, rules.Ignored.HasPhone(a.Phone))
	a.Email = r.unlessIgnored("email", a.Email, rules.Ignored.HasEmail(a.Email))
	a.VisitorID, a.CustomFields = r.visitorID(), r.given
	for _, wrong := range custom.wrong {
		r.wrong.Add(wrong.Field, wrong.Message)
	}
	a.Status, a.UnknownStatus = r.status(rules.Stages)
	a.Metadata, a.Source, a.IP, a.UserAgent = r.metadata(client)
	a.Consents = r.consents(a.Metadata, rules)
	switch {
	case a.Phone != "" || a.Email != "" || r.wrongContact:
	case r.ignored != nil:
		for _, key := range r.ignored {
			r.wrong.Add(key, "is on the account's list of ignored contacts")
		}
	default:
		r.wrong.Add("phone", "or email is required"+foundInstead(body))
	}
	if rules.From == contact.Call || rules.OwnSource { // other bodies have another source than the one that they name
		r.warnSource(a.Metadata[keySource])
	}
	r.warnContacts(a, rules)
	a.Warnings = r.warnings
	if len(r.wrong) > 0 && a.UnknownStatus != "" {
		r.wrong.Add("status", unknownStatus(rules.Stages))
	}
	return a, r.wrong.Err()
}

// reader reads the fields of a body and collects their errors.
type reader struct {
	body         map[string]jsontext.Value
	given        map[string]jsontext.Value // the custom fields that the body has
	wrong        field.Errors
	wrongContact bool     // wrong has an error of the phone or email
	ignored      []string // keys of contacts that are on the account's list
	warnings     field.Warnings
}

// present reports whether a key is given with a value that is not empty. An empty value counts as absent everywhere.
func (r *reader) present(key string) bool { return !empty(r.body[key]) }

// first returns the first of several aliases that is present.
func (r *reader) first(aliases []string) (string, bool) {
	for _, key := range aliases {
		if r.present(key) {
			return key, true
		}
	}
	return "", false
}

// text reads a string; false when it is absent or not a string, which is then added to the errors.
func (r *reader) text(key string) (string, bool) {
	if !r.present(key) {
		return "", false
	}
	s, ok := text(r.body[key])
	if !ok {
		r.wrong.Add(key, "must be a string")
	}
	return s, ok
}

// name reads the first alias whose value is a name.
func (r *reader) name(Rules) string {
	var wrong field.Warnings
	for _, key := range nameAliases {
		raw, given := r.text(key)
		name := contact.ParseName(raw)
		if name == "" {
			if given {
				wrong.Add(key, field.NotAName, "is not a name, and was taken as absent")
			}
			continue
		}
		if Length(name) > MaxName {
			r.wrong.Add(key, "must be at most 200 characters")
		}
		return name
	}
	r.warnings = append(r.warnings, wrong...)
	return ""
}

// phone also accepts a JSON number, because some forms send the digits as one.
func (r *reader) phone(rules Rules) string {
	const key = "phone"
	v := r.body[key]
	raw := string(v)
	switch {
	case v.Kind() != '0':
		raw = r.contactText(key)
	case !contact.IsDigits(raw):
		raw = "-"
	}
	if raw == "" {
		return ""
	}
	hint := contact.Hint{From: rules.From}
	if raw[0] != '+' {
		hint.Country = r.phoneCountry()
	}
	phone, err := contact.ParsePhone(raw, rules.Region, hint)
	switch {
	case err != nil && rules.Ignored.HasDigits(raw):
		return r.unlessIgnored(key, raw, true)
	case err != nil:
		r.addWrongContact(key, err.Error())
	}
	return phone
}

// countryFields are names of custom fields with the country of a phone, without case and punctuation. The first that
// names one counts.
var countryFields = []string{
	"phonecountrycode", "phonecountry", "countrycode", "dialcode", "dialingcode", "callingcode", "isdcode", "country",
}

// phoneCountry returns the value of the custom field that has the country of the phone; empty if there is none.
func (r *reader) phoneCountry() string {
	rank, name, country := len(countryFields), "", ""
	for key, value := range r.given {
		at := slices.Index(countryFields, simple(key))
		if at < 0 || at > rank || at == rank && key > name {
			continue
		}
		if text := Scalar(value); contact.RegionOf(text) != "" {
			rank, name, country = at, key, text
		}
	}
	return country
}

// simple returns a name in lower case without spaces and punctuation.
func simple(name string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || unicode.IsPunct(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}

func (r *reader) email(Rules) string {
	const key = "email"
	raw := r.contactText(key)
	if raw == "" {
		return ""
	}
	email, err := contact.ParseEmail(raw)
	if err != nil {
		r.addWrongContact(key, err.Error())
	}
	return email
}

// contactText reads the text of a phone or email; empty when it has none.
func (r *reader) contactText(key string) string {
	raw, ok := r.text(key)
	if r.wrongContact = r.wrongContact || !ok && r.present(key); contact.IsBlank(raw) {
		return ""
	}
	return raw
}

func (r *reader) addWrongContact(key, message string) {
	r.wrongContact = true
	r.wrong.Add(key, message)
}

func (r *reader) status(stages []string) (known, unknown string) {
	raw, ok := r.text("status")
	if !ok {
		return "", ""
	}
	raw = strings.TrimSpace(raw)
	if stage, ok := account.Stage(stages, raw); ok {
		return stage, ""
	}
	return "", raw
}

func unknownStatus(stages []string) string {
	return "must be one of the account's stages: " + strings.Join(stages, ", ")
}

func (r *reader) temperature(Rules) string {
	raw, ok := r.text("leadTemperature")
	if !ok {
		return ""
	}
	raw = strings.TrimSpace(raw)
	for _, t := range temperatures {
		if strings.EqualFold(raw, t) {
			return t
		}
	}
	r.wrong.Add("leadTemperature", "must be one of hot, warm, cold")
	return ""
}

func (r *reader) opportunityValue(Rules) string {
	const key = "opportunityValue"
	v := r.body[key]
	var amount Amount
	var err error
	switch {
	case empty(v):
		return ""
	case v.Kind() == '0':
		amount, err = AmountFromNumber(string(v))
	case v.Kind() == '"':
		s, _ := text(v)
		amount, err = ParseAmount(s)
	default:
		r.wrong.Add(key, "must be a number")
		return ""
	}
	if err != nil {
		r.wrong.Add(key, err.Error())
		return ""
	}
	return amount.String()
}

func (r *reader) visitorID() string {
	key, ok := r.first(visitorAliases)
	if !ok {
		return ""
	}
	id, _ := r.text(key)
	if Length(id) > MaxVisitorID {
		r.wrong.Add(key, "must be at most 200 characters")
	}
	return id
}

// metadata reads the attribution: the given members without nulls, and the source, IP address and user agent derived
// from them.
func (r *reader) metadata(client Client) (given map[string]jsontext.Value, source, ip, userAgent string) {
	source, ip, userAgent = DefaultSource, client.IP, client.UserAgent
	if !r.present("metadata") {
		return nil, source, ip, userAgent
	}
	given, ok := r.object("metadata")
	if !ok {
		return nil, source, ip, userAgent
	}
	if len(given) > MaxMetadataKeys {
		r.wrong.Add("metadata", "must have at most 64 keys")
	}
	if len(r.body["metadata"]) > MaxMetadataBytes {
		r.wrong.Add("metadata", "must be at most 32 KiB")
	}
	if s, ok := text(given[keySource]); ok && Canonical(s) {
		source = s
	}
	if s, ok := text(given[keyIP]); ok {
		if addr, err := netip.ParseAddr(strings.TrimSpace(s)); err == nil {
			ip = addr.Unmap().WithZone("").String()
		}
	}
	if v := given[keyUserAgent]; !empty(v) {
		s, ok := text(v)
		if !ok {
			r.wrong.Add("metadata.userAgent", "must be a string")
		}
		// An event contains it in addition to the metadata as given, and must fit both.
		userAgent = strings.ToValidUTF8(s[:min(len(s), MaxUserAgent)], "")
	}
	return given, source, ip, userAgent
}

// object reads a member that is an object, without its nulls.
func (r *reader) object(key string) (map[string]jsontext.Value, bool) {
	members, err := Members(r.body[key])
	if err != nil {
		r.wrong.Add(key, "must be an object")
		return nil, false
	}
	for name, v := range members {
		if v.Kind() == 'n' {
			delete(members, name)
		}
	}
	return members, true
}
