package lead

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
)

// Repaired returns the body of an arrival whose sender cannot correct it, in a form that only the lack of a usable
// contact can make invalid. A value that cannot be used becomes a custom field of its name, one that is too long is
// cut, and fields beyond the limits of a lead are left out. A contact that no person has is taken as absent. The
// warnings say so. The body has no aliases, as that of a mapping. With asked, the sender is a person who can correct
// the contacts, and they are left as they are, unless they are lists.
func Repaired(body map[string]jsontext.Value, rules Rules, asked bool) (map[string]jsontext.Value, field.Warnings) {
	r := repair{body: maps.Clone(body), rules: rules, custom: map[string]jsontext.Value{}}
	given, err := Members(body["customFields"])
	if r.given = given; err != nil && !empty(body["customFields"]) {
		r.warnings.Add("customFields", field.FieldDropped, "is not an object, and was left out")
	}
	if !asked || body["phone"].Kind() == '[' || body["email"].Kind() == '[' {
		r.contacts()
	}
	r.name()
	r.optional("status", field.StatusUnknown, func(v jsontext.Value) bool {
		_, known := account.Stage(rules.Stages, strings.TrimSpace(Scalar(v)))
		return known
	})
	r.optional("leadTemperature", field.TemperatureUnknown, func(v jsontext.Value) bool {
		return slices.ContainsFunc(temperatures, func(t string) bool {
			return strings.EqualFold(t, strings.TrimSpace(Scalar(v)))
		})
	})
	r.optional("opportunityValue", field.ValueUnreadable, func(v jsontext.Value) bool {
		value := reader{body: map[string]jsontext.Value{"opportunityValue": v}}
		value.opportunityValue(rules)
		return value.wrong == nil
	})
	r.optional("visitorId", field.ValueUnreadable, func(v jsontext.Value) bool {
		return Length(Scalar(v)) <= MaxVisitorID
	})
	r.customFields()
	r.metadata()
	return r.body, r.warnings
}

// Unaliased returns a body with every field under its own name, as Repaired reads it.
func Unaliased(body map[string]jsontext.Value) map[string]jsontext.Value {
	plain := map[string]jsontext.Value{}
	for _, name := range append(FieldNames(), "metadata") {
		if value, given := body[name]; given {
			plain[name] = value
		}
	}
	for _, key := range slices.Backward(nameAliases) {
		if value := body[key]; contact.ParseName(Scalar(value)) != "" {
			plain["name"] = value
		}
	}
	for _, key := range slices.Backward(visitorAliases) {
		if value := body[key]; !empty(value) {
			plain["visitorId"] = value
		}
	}
	custom := map[string]jsontext.Value{}
	for key, value := range body {
		if _, ours := reserved[key]; !ours {
			custom[key] = value
		}
	}
	for _, key := range slices.Backward(customAliases) {
		members, err := Members(body[key])
		if err != nil && !empty(body[key]) {
			custom[key] = body[key] // is kept as it is
		}
		for name, value := range members {
			if !empty(value) {
				custom[name] = value
			}
		}
	}
	if len(custom) > 0 {
		plain["customFields"] = objectOf(custom)
	}
	return plain
}

// repair is a body while it is repaired.
type repair struct {
	body     map[string]jsontext.Value
	rules    Rules
	given    map[string]jsontext.Value // custom fields
	custom   map[string]jsontext.Value // that remain
	warnings field.Warnings
}

// elements returns the elements of a list, and any other value alone. A form may repeat a field.
func elements(v jsontext.Value) []jsontext.Value {
	if v.Kind() != '[' {
		return []jsontext.Value{v}
	}
	var list []jsontext.Value
	if json.Unmarshal(v, &list) != nil || len(list) == 0 {
		return []jsontext.Value{v}
	}
	return list
}

// textOf returns a text, and the JSON of anything else.
func textOf(v jsontext.Value) string {
	if s, ok := text(v); ok {
		return s
	}
	return string(v)
}

func objectOf(members map[string]jsontext.Value) jsontext.Value {
	object, _ := json.Marshal(members, json.Deterministic(true)) // the members are valid
	return object
}

// flat returns the elements of a list and of the lists in it, and any other value alone.
func flat(v jsontext.Value) (values []jsontext.Value) {
	if v.Kind() != '[' || empty(v) {
		return []jsontext.Value{v}
	}
	for _, element := range elements(v) {
		values = append(values, flat(element)...)
	}
	return values
}

// partsOf returns the texts of an object that has nothing but members of two names, as simple returns them; false if it
// has others.
func partsOf(v jsontext.Value, names [2][]string) (parts [2]string, ok bool) {
	members, err := Members(v)
	for key, value := range members {
		at := slices.IndexFunc(names[:], func(of []string) bool { return slices.Contains(of, simple(key)) })
		switch {
		case empty(value):
		case at < 0 || parts[at] != "" || Scalar(value) == "":
			return parts, false
		default:
			parts[at] = strings.TrimSpace(Scalar(value))
		}
	}
	return parts, err == nil
}

// phoneText returns the text of a text or a number, and of an object with a country code and a number; else an empty
// one.
func phoneText(v jsontext.Value) string {
	parts, ok := partsOf(v, [2][]string{countryFields, {"number", "phone", "phonenumber", "nationalnumber"}})
	code := strings.TrimPrefix(parts[0], "+")
	switch {
	case !ok:
		return Scalar(v)
	case code == "":
		return parts[1]
	case !contact.IsDigits(code):
		return ""
	}
	return "+" + code + " " + parts[1]
}

// nameText returns the text of a text or a number, and of an object with a first and a last name; else an empty one.
func nameText(v jsontext.Value) string {
	parts, ok := partsOf(v, [2][]string{
		{"first", "firstname", "givenname"}, {"last", "lastname", "familyname", "surname"},
	})
	if !ok {
		return Scalar(v)
	}
	return strings.TrimSpace(parts[0] + " " + parts[1])
}

// contacts leaves at most one phone and one email in the body: the first that can be used. One that cannot stays if no
// contact can be, so that the arrival is refused for it.
func (r *repair) contacts() {
	phone := r.contact("phone", func(text string) (string, contactUse) {
		if contact.PlaceholderPhone(text) {
			return "", placeholderContact
		}
		given := reader{body: map[string]jsontext.Value{"phone": quote(text)}, given: r.given}
		phone := given.phone(r.rules)
		switch {
		case given.wrong != nil:
			return "", wrongContact
		case given.ignored != nil || r.rules.Ignored.HasPhone(phone):
			return "", ignoredContact
		case contact.PlaceholderPhone(phone):
			return "", placeholderContact
		}
		return phone, usableContact
	})
	email := r.contact("email", func(text string) (string, contactUse) {
		email, err := contact.ParseEmail(text)
		switch {
		case contact.PlaceholderEmail(email):
			return "", placeholderContact
		case err != nil:
			return "", wrongContact
		case r.rules.Ignored.HasEmail(email):
			return "", ignoredContact
		}
		return email, usableContact
	})
	none := r.body["phone"] == nil && r.body["email"] == nil
	for _, of := range [...]struct {
		name  string
		wrong []jsontext.Value
	}{{"phone", phone}, {"email", email}} {
		switch {
		case len(of.wrong) == 0:
		case none:
			r.body[of.name] = of.wrong[0]
		default:
			for _, value := range of.wrong {
				r.addCustom(of.name, value)
			}
			r.warnings.Add(of.name, field.ValueUnreadable, "cannot be used, and is kept as a custom field")
		}
	}
}

// contactUse is what a repair does with a contact.
type contactUse int

const (
	usableContact      contactUse = iota
	wrongContact                  // kept as a custom field, if there is another contact
	placeholderContact            // taken as absent
	ignoredContact                // on the account's list; another one is preferred
)

// contact sets a contact to its first usable value, or to an ignored one if there is no other, and returns the values
// that cannot be used. Read returns a text in canonical form. Other usable values become custom fields.
func (r *repair) contact(name string, read func(text string) (string, contactUse)) (wrong []jsontext.Value) {
	values := flat(r.body[name])
	delete(r.body, name)
	if len(values) > MaxCustomFields+1 {
		values = values[:MaxCustomFields+1]
		r.warnings.Add(name, field.FieldDropped, "has more values than a lead can have, and the others were left out")
	}
	var ignored jsontext.Value
	var used []string
	for _, value := range values {
		if empty(value) {
			continue
		}
		text := phoneText(value)
		if text == "" {
			wrong = append(wrong, value)
			continue
		}
		if contact.Placeholder(text) {
			r.warnings.Add(name, field.PlaceholderContact, "is a placeholder, and was taken as absent")
			continue
		}
		switch canonical, use := read(text); {
		case use == placeholderContact:
			r.warnings.Add(name, field.PlaceholderContact, "is a placeholder, and was taken as absent")
		case use == ignoredContact:
			if ignored == nil {
				ignored = quote(text)
			}
		case use == wrongContact:
			wrong = append(wrong, value)
		case slices.Contains(used, canonical):
		default:
			if used = append(used, canonical); len(used) == 1 {
				r.body[name] = quote(text)
			} else {
				r.addCustom(name, value)
			}
		}
	}
	switch {
	case ignored == nil:
	case r.body[name] == nil:
		r.body[name] = ignored // what reads the body takes it as absent, and says so
	default:
		r.warnings.Add(name, field.IgnoredContact, "is on the account's list of ignored contacts, and was taken as absent")
	}
	return wrong
}

// name sets the name to the first one. Others, and what cannot be read as one, become custom fields.
func (r *repair) name() {
	given := r.body["name"]
	delete(r.body, "name")
	for _, value := range flat(given) {
		name := nameText(value)
		switch {
		case empty(value):
		case name == "":
			r.addCustom("name", value)
			r.warnings.Add("name", field.ValueUnreadable, "cannot be used, and is kept as a custom field")
		case r.body["name"] != nil:
			r.addCustom("name", value)
		default:
			if Length(name) > MaxName {
				name = cut(name, MaxName)
				r.warnings.Add("name", field.ValueShortened, "is longer than 200 characters, and was cut")
			}
			r.body["name"] = quote(name)
		}
	}
}

// optional moves a value that cannot be used to the custom fields.
func (r *repair) optional(name, code string, usable func(jsontext.Value) bool) {
	given := r.body[name]
	if empty(given) {
		return
	}
	value := elements(given)[0]
	if usable(value) {
		r.body[name] = value
		if name != "opportunityValue" && value.Kind() != '"' {
			r.body[name] = quote(Scalar(value))
		}
		return
	}
	delete(r.body, name)
	r.addCustom(name, given)
	r.warnings.Add(name, code, "cannot be used, and is kept as a custom field")
}

// addCustom adds a custom field, under a name of its own if the name is taken, as often as a lead has room for it.
func (r *repair) addCustom(name string, value jsontext.Value) {
	free := name
	for n := 2; r.custom[free] != nil || r.given[free] != nil; n++ {
		if n > MaxCustomFields+1 {
			r.warnings.Add(name, field.FieldDropped, surplusField)
			return
		}
		free = fmt.Sprintf("%s (%d)", cut(name, MaxCustomKey-len(" (99)")), n)
	}
	r.custom[free] = value
}

func (r *repair) customFields() {
	for _, name := range slices.Sorted(maps.Keys(r.given)) {
		value := r.given[name]
		if empty(value) {
			continue
		}
		key := strings.TrimSpace(strings.Map(withoutControl, name))
		if key == "" {
			key = "field"
		}
		if Length(key) > MaxCustomKey {
			key = cut(key, MaxCustomKey)
			r.warnings.Add(key, field.ValueShortened, "has a name of more than 50 characters, which was cut")
		}
		if key != name {
			delete(r.given, name)
			r.addCustom(key, value)
		} else {
			r.custom[name] = value
			delete(r.given, name)
		}
	}
	kept := slices.Sorted(maps.Keys(r.custom))
	for i, name := range kept {
		if i >= MaxCustomFields {
			delete(r.custom, name)
			r.warnings.Add(name, field.FieldDropped, surplusField)
			continue
		}
		if customLength(r.custom[name]) > MaxCustomValue {
			r.custom[name] = quote(cut(textOf(r.custom[name]), MaxCustomValue))
			r.warnings.Add(name, field.ValueShortened, "is longer than 2000 characters, and was cut")
		}
	}
	delete(r.body, "customFields")
	if len(r.custom) > 0 {
		r.body["customFields"] = objectOf(r.custom)
	}
}

// metadata keeps as many members as a lead can have, those of the campaign and the clicks first.
func (r *repair) metadata() {
	if empty(r.body["metadata"]) {
		return
	}
	given, err := Members(r.body["metadata"])
	if err != nil {
		delete(r.body, "metadata")
		r.warnings.Add("metadata", field.FieldDropped, "is not an object, and was left out")
		return
	}
	r.consents(given)
	names := slices.SortedFunc(maps.Keys(given), byRank)
	size, kept := len("{}"), map[string]jsontext.Value{}
	for _, name := range names {
		more := len(quote(name)) + len(":,") + len(given[name])
		if len(kept) == MaxMetadataKeys || size+more > MaxMetadataBytes {
			r.warnings.Add("metadata."+name, field.FieldDropped, surplusMetadata)
			continue
		}
		size += more
		kept[name] = given[name]
	}
	if user := kept[keyUserAgent]; user != nil && user.Kind() != '"' {
		kept[keyUserAgent] = quote(textOf(user))
	}
	r.body["metadata"] = objectOf(kept)
}

// byRank orders the members of metadata by how much is lost without them.
func byRank(a, b string) int { return cmp.Or(rankOf(a)-rankOf(b), strings.Compare(a, b)) }

// consents cuts the words of consents that are too long, and leaves out those beyond the limit of an arrival. What else
// is wrong with them stays, and then none is recorded.
func (r *repair) consents(metadata map[string]jsontext.Value) {
	const name = metadataConsent
	value := metadata[keyConsent]
	if value.Kind() != '[' && value.Kind() != '{' || empty(value) {
		return
	}
	list := elements(value)
	dropped := len(list) > MaxConsents
	if dropped {
		list = list[:MaxConsents]
		r.warnings.Add(name, field.FieldDropped, "has more than 20 consents, and the others were left out")
	}
	repaired, shortened := shortenedConsents(list, MaxConsentText)
	for most := MaxConsentText / 2; len(repaired) > MaxConsentBytes && most > 0; most /= 2 {
		repaired, _ = shortenedConsents(list, most)
		shortened = true
	}
	if shortened {
		r.warnings.Add(name, field.ValueShortened, "has texts that are too long, and were cut")
	}
	if shortened || dropped {
		metadata[keyConsent] = repaired
	}
}

// shortenedConsents returns a list of consents whose words have at most so many characters.
func shortenedConsents(list []jsontext.Value, most int) (consents jsontext.Value, shortened bool) {
	kept := make([]jsontext.Value, len(list))
	for i, item := range list {
		members, err := Members(item)
		if kept[i] = item; err != nil {
			continue
		}
		for name, limit := range map[string]int{
			"text": MaxConsentText, "version": MaxVersion, "url": MaxConsentURL, "method": maxMethod,
		} {
			if words, is := text(members[name]); is && Length(words) > min(limit, most) {
				members[name], shortened = quote(cut(words, min(limit, most))), true
			}
		}
		kept[i] = objectOf(members)
	}
	consents, _ = json.Marshal(kept) // the items are valid
	return consents, shortened
}

func rankOf(name string) int {
	switch {
	case name == keySource, name == keyConsent:
		return 0
	case strings.HasPrefix(name, "utm_"), slices.Contains(clickIDs, name), name == "page_url", name == "landing_page":
		return 1
	}
	return 2
}

func withoutControl(c rune) rune {
	if unicode.IsControl(c) {
		return ' '
	}
	return c
}

// cut returns at most so many characters of a text.
func cut(text string, most int) string {
	if Length(text) <= most {
		return text
	}
	runes := []rune(text)
	for end := min(most, len(runes)); ; end-- {
		if short := string(runes[:end]); Length(short) <= most {
			return strings.TrimRight(short, " ")
		}
	}
}
