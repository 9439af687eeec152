package intake

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/expression"
	"github.com/leadlog/leadlog/command/field"
)

// What a form answers when the person's phone and email are missing or wrong.
const (
	InvalidAuto   = "auto"   // a browser is refused, and a post of a server is kept
	InvalidReject = "reject" // 400, and nothing is kept
	InvalidKeep   = "keep"   // 200, and the post is quarantined
)

// OnInvalids returns all of them.
func OnInvalids() []string { return []string{InvalidAuto, InvalidReject, InvalidKeep} }

// FromBrowser reports whether headers, by names in lower case, are those of a page in a browser: only there can a
// person correct a form.
func FromBrowser(headers map[string]string) bool {
	for name := range headers {
		if name == "origin" || strings.HasPrefix(name, "sec-fetch-") {
			return true
		}
	}
	return strings.Contains(headers["accept"], "text/html")
}

// numbered matches the number at the end of a name that a form builder made.
var numbered = regexp.MustCompile(`-\d+$`)

// name is the whole name as forms with nested fields write it, such as form_fields[email].
func (l leaf) name() string {
	if len(l.path) == 1 {
		return l.path[0]
	}
	return l.path[0] + "[" + strings.Join(l.path[1:], "][") + "]"
}

// group is the name of the object that has the value.
func (l leaf) group() string {
	return leaf{path: append([]string{""}, l.path[:len(l.path)-1]...)}.name()
}

// elements is in how many lists the value is.
func (l leaf) elements() (n int) {
	for _, name := range l.path {
		if _, err := strconv.Atoi(name); err == nil {
			n++
		}
	}
	return n
}

// key is the name of the custom field that the value becomes: the innermost one that says something.
func (l leaf) key() string {
	for _, name := range slices.Backward(l.path) {
		if name != "" && !strings.EqualFold(name, "value") {
			if _, err := strconv.Atoi(name); err != nil || len(l.path) == 1 {
				return name
			}
		}
	}
	return l.name()
}

const (
	maxDepth  = 6
	maxLeaves = 1000
)

// leavesOf returns the values of a post in the order of their names, also those that are not filled. It also looks into
// texts that are JSON objects, and takes an object with a value beside its name, label, title or key as one field of
// this name.
func leavesOf(body any) (leaves []leaf) {
	var walk func(path []string, value any)
	walk = func(path []string, value any) {
		if len(leaves) == maxLeaves {
			return
		}
		value = unpacked(value)
		if len(path) < maxDepth {
			switch value := value.(type) {
			case map[string]any:
				if name, inner, ok := labelled(value); ok {
					walk(append(slices.Clip(path), name), inner)
					return
				}
				if phone, ok := wholePhone(value); ok {
					leaves = append(leaves, leaf{path: path, value: phone})
					return
				}
				for _, name := range slices.Sorted(maps.Keys(value)) {
					walk(append(slices.Clip(path), splitName(name)...), value[name])
				}
				return
			case []any:
				if slices.ContainsFunc(value, func(v any) bool { _, object := v.(map[string]any); return object }) {
					for i, element := range value {
						walk(append(slices.Clip(path), strconv.Itoa(i)), element)
					}
					return
				}
				if len(value) == 1 {
					walk(path, value[0])
					return
				}
			}
		}
		if len(path) > 0 {
			leaves = append(leaves, leaf{path: path, value: value})
		}
	}
	walk(nil, body)
	return leaves
}

// unpacked returns the object that a text is the JSON of, and anything else unchanged.
func unpacked(value any) any {
	text, ok := value.(string)
	if !ok || !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return value
	}
	if parsed, err := expression.Parse([]byte(text)); err == nil {
		if object, ok := parsed.(map[string]any); ok {
			return object
		}
	}
	return value
}

// splitName splits a nested name, such as fields[email][value], into its parts.
func splitName(name string) []string {
	outer, inner, nested := strings.Cut(name, "[")
	if !nested || outer == "" || !strings.HasSuffix(inner, "]") {
		return []string{name}
	}
	return append([]string{outer}, strings.Split(strings.TrimSuffix(inner, "]"), "][")...)
}

// labelled returns the name and the value of an object that describes one field. A value that is the id of an option is
// its text.
func labelled(object map[string]any) (name string, value any, ok bool) {
	value, ok = object["value"]
	if !ok {
		return "", nil, false
	}
	for _, member := range []string{"label", "title", "name", "key", "id"} {
		if name = textIn(object, member); name != "" {
			return name, withOptions(value, object["options"]), true
		}
	}
	return "", nil, false
}

// withOptions returns a value with the texts of options in the place of their ids, as Tally sends them.
func withOptions(value, options any) any {
	list, _ := options.([]any)
	texts := map[string]any{}
	for _, element := range list {
		option, _ := element.(map[string]any)
		if text := textIn(option, "text"); text != "" {
			texts[textIn(option, "id")] = text
		}
	}
	if len(texts) == 0 {
		return value
	}
	textOfID := func(id any) any {
		if text, known := texts[textOf(id)]; known {
			return text
		}
		return id
	}
	ids, several := value.([]any)
	if !several {
		return textOfID(value)
	}
	chosen := make([]any, len(ids))
	for i, id := range ids {
		chosen[i] = textOfID(id)
	}
	return chosen
}

// wholePhone returns the phone that an object has in two or three parts, as Jotform sends it.
func wholePhone(object map[string]any) (string, bool) {
	country, area, phone := textIn(object, "country"), textIn(object, "area"), textIn(object, "phone")
	_, hasCountry := object["country"]
	switch {
	case area == "", phone == "", len(object) > 3, len(object) == 3 && !hasCountry:
		return "", false
	case contact.IsDigits(strings.TrimPrefix(country, "+")):
		return "+" + strings.TrimPrefix(country, "+") + " " + area + " " + phone, true
	case country != "":
		return "", false
	}
	return area + " " + phone, true
}

// generatedID matches the names that Elementor makes for fields.
var generatedID = regexp.MustCompile(`^field_[0-9a-f]{6,}$`)

// described removes the members beside the value of a nested field, such as fields[email][title]: they describe it. If
// its name says nothing, the title does, and the type says whether it is a contact.
func described(leaves []leaf) []leaf {
	about := map[string]map[string]string{} // by group
	for _, l := range leaves {
		if len(l.path) > 2 {
			if about[l.group()] == nil {
				about[l.group()] = map[string]string{}
			}
			about[l.group()][l.path[len(l.path)-1]] = textOf(l.value)
		}
	}
	var kept []leaf
	for _, l := range leaves {
		members := about[l.group()]
		if _, isField := members["value"]; isField {
			if l.path[len(l.path)-1] != "value" {
				continue
			}
			l.describe(members["title"], members["type"])
		}
		kept = append(kept, l)
	}
	return kept
}

// describe adds what a form says of a nested field whose name says nothing.
func (l *leaf) describe(title, kind string) {
	if _, known := contact.FieldOf(l.name()); known {
		return
	}
	if title = strings.TrimSpace(title); title != "" {
		l.label = title
		if own := len(l.path) - 2; generatedID.MatchString(l.path[own]) {
			l.path = slices.Clone(l.path)
			l.path[own] = title
		}
	}
	if _, known := contact.FieldOf(title); known {
		return
	}
	switch kind {
	case "email":
		l.means = contact.FieldEmail
	case "tel":
		l.means = contact.FieldPhone
	}
}

// nameParts matches the names of the fields of Gravity Forms that have a first or a last name.
var nameParts = regexp.MustCompile(`^(\d+)\.([36])$`)

// markGravityNames marks the first and the last name in an entry of Gravity Forms, which has the numbers of fields: 1.3
// and 1.6, unless the field is an address, which has a 1.1 or a 1.5.
func markGravityNames(post map[string]any, leaves []leaf) {
	if !filled(post["form_id"]) {
		return
	}
	for i, l := range leaves {
		part := nameParts.FindStringSubmatch(l.name())
		if part == nil {
			continue
		}
		_, street := post[part[1]+".1"]
		_, code := post[part[1]+".5"]
		switch {
		case street || code:
		case part[2] == "3":
			leaves[i].means = contact.FieldFirstName
		default:
			leaves[i].means = contact.FieldLastName
		}
	}
}

// known is what a post says of the person, for the variable known of mappings.
type known struct {
	name, email, phone, visitorID any
	metadata, rest                map[string]any
	warnings                      field.Warnings
	several                       bool // the post is of several persons, of which one would be captured

	latest map[string]int // by name: the number of its latest value in rest
}

// variable returns the value of the variable.
func (k *known) variable() map[string]any {
	return map[string]any{
		"name": k.name, "email": k.email, "phone": k.phone, "visitorId": k.visitorID, "metadata": k.metadata,
		"rest": k.rest,
	}
}

// knownOf reads a post by the names of its values. Of several contacts of a kind, the first that can be used counts. If
// no name is that of a contact, the values tell. Everything else is left in rest.
func knownOf(leaves []leaf, region string) *known {
	k := &known{metadata: map[string]any{}, rest: map[string]any{}, latest: map[string]int{}}
	leaves = repeated(leaves)
	fields := meanings(leaves)
	used := make([]bool, len(leaves))
	email := k.choose(leaves, fields, contact.FieldEmail, region)
	phone := k.choose(leaves, fields, contact.FieldPhone, region)
	if email < 0 && phone < 0 {
		email, phone = k.byValue(leaves, fields, region)
	}
	group := ""
	for _, i := range []int{phone, email} {
		if i >= 0 {
			used[i], group = true, leaves[i].group()
			k.several = k.several || severalPersons(leaves, fields, leaves[i])
		}
	}
	if email >= 0 {
		k.email = leaves[email].value
	}
	if phone >= 0 {
		k.phone = leaves[phone].value
	}
	for _, i := range nameOf(leaves, fields, used, group) {
		used[i] = true
		k.name = joined(k.name, leaves[i].value)
	}
	for i, l := range leaves {
		if !used[i] {
			k.add(l, fields[i])
		}
	}
	return k
}

// repeated returns leaves with each value of a contact or a name that a form repeats as one of its own, so that those
// that are not used are kept.
func repeated(leaves []leaf) []leaf {
	var each []leaf
	for _, l := range leaves {
		values, several := l.value.([]any)
		if field, _ := contact.FieldOf(cmp.Or(l.label, l.name())); !several || len(values) < 2 ||
			field.Kind() == "" && field != contact.FieldName {
			each = append(each, l)
			continue
		}
		for _, value := range values {
			l.value = value
			each = append(each, l)
		}
	}
	return each
}

// severalPersons reports whether a contact is in a list of which two elements have a name and a contact each.
func severalPersons(leaves []leaf, fields []contact.Field, of leaf) bool {
	for at, part := range of.path {
		if _, err := strconv.Atoi(part); err != nil {
			continue
		}
		named, reachable := map[string]bool{}, map[string]bool{}
		for i, l := range leaves {
			if len(l.path) <= at+1 || !slices.Equal(l.path[:at], of.path[:at]) {
				continue
			}
			switch {
			case fields[i].Kind() != "":
				reachable[l.path[at]] = true
			case slices.Contains([]contact.Field{
				contact.FieldName, contact.FieldFirstName, contact.FieldLastName,
			}, fields[i]):
				named[l.path[at]] = true
			}
		}
		persons := 0
		for element := range named {
			if reachable[element] {
				persons++
			}
		}
		if persons > 1 {
			return true
		}
	}
	return false
}

// meanings returns what each value is.
func meanings(leaves []leaf) []contact.Field {
	names := make([]string, len(leaves))
	for i, l := range leaves {
		names[i] = numbered.ReplaceAllString(cmp.Or(l.label, l.name()), "") // tel-123 of Contact Form 7
	}
	fields := contact.FieldsOf(names)
	for i, l := range leaves {
		further := fields[i].Kind() == l.means.Kind() && fields[i].Rank() > l.means.Rank()
		switch {
		case fields[i] == contact.FieldNotLead, fields[i] == contact.FieldNotPerson: // whatever its type
		case l.means != "" && !further:
			fields[i] = l.means
		case l.hidden && fields[i].Kind() == contact.FieldEmail:
			fields[i] = contact.FieldOtherEmail
		case l.hidden && fields[i].Kind() == contact.FieldPhone:
			fields[i] = contact.FieldOtherPhone
		}
	}
	return fields
}

// add adds a value that is no contact and no name of the person.
func (k *known) add(l leaf, meaning contact.Field) {
	own := l.path[0]
	key, isMetadata := strings.CutPrefix(string(meaning), "metadata.")
	ofCampaign := len(l.path) == 1 && (strings.HasPrefix(own, "utm_") || slices.Contains(campaign, own))
	switch {
	case meaning == contact.FieldSource: // the intake has one of its own
		k.addRest(l)
	case meaning == contact.FieldVisitorID && k.visitorID == nil:
		k.visitorID = l.value
	case l.hidden, ofCampaign && strings.HasPrefix(own, "first_"), ofCampaign && strings.HasPrefix(own, "utm_"):
		k.metadata[own] = l.value
	case isMetadata && k.metadata[key] == nil && (!l.question || slices.Contains(campaign, key)):
		k.metadata[key] = l.value
	default:
		k.addRest(l)
	}
}

// addRest adds a value to rest, under a name of its own if its name is taken.
func (k *known) addRest(l leaf) {
	name := l.key()
	free := name
	for _, taken := k.rest[free]; taken; _, taken = k.rest[free] {
		k.latest[name] = max(k.latest[name], 1) + 1
		free = fmt.Sprintf("%s (%d)", name, k.latest[name])
	}
	k.rest[free] = l.value
}

// choose returns the field with the contact of a kind: the first by rank, and of those the first outside of lists,
// whose value can be used, else the first with one; -1 without any.
func (k known) choose(leaves []leaf, fields []contact.Field, kind contact.Field, region string) int {
	var candidates []int
	for i, f := range fields {
		if f.Kind() == kind && !contact.Placeholder(textOf(leaves[i].value)) {
			candidates = append(candidates, i)
		}
	}
	slices.SortStableFunc(candidates, func(a, b int) int {
		return cmp.Or(fields[a].Rank()-fields[b].Rank(), leaves[a].elements()-leaves[b].elements())
	})
	for _, i := range candidates {
		if text := textOf(leaves[i].value); usable(kind, text, region) {
			if kind == contact.FieldPhone {
				return inFull(leaves, i)
			}
			return i
		}
	}
	if len(candidates) > 0 {
		return candidates[0]
	}
	return -1
}

// inFull returns the field with the number of a phone in full: the one whose value is a + and digits that end with
// those of the phone, which lacks the country code, else the phone's own. Widgets for phones send both.
func inFull(leaves []leaf, phone int) int {
	text := strings.TrimSpace(textOf(leaves[phone].value))
	national := strings.TrimLeft(contact.Digits(text), "0")
	if strings.HasPrefix(text, "+") || len(national) < 7 {
		return phone
	}
	for i, l := range leaves {
		full := strings.TrimSpace(textOf(l.value))
		code := len(full) - len("+") - len(national)
		if strings.HasPrefix(full, "+") && contact.IsDigits(full[1:]) && strings.HasSuffix(full, national) &&
			code >= 1 && code <= 3 {
			return i
		}
	}
	return phone
}

func usable(kind contact.Field, text, region string) bool {
	if kind == contact.FieldEmail {
		_, err := contact.ParseEmail(text)
		return err == nil
	}
	_, err := contact.ParsePhone(text, region, contact.Hint{From: contact.Post})
	return err == nil && !contact.PlaceholderPhone(text)
}

// byValue returns the first fields whose values are an email and a phone. An id, and the address of who receives the
// post, are the same in the posts of all persons.
func (k *known) byValue(leaves []leaf, fields []contact.Field, region string) (email, phone int) {
	email, phone = -1, -1
	for i, l := range leaves {
		text := textOf(l.value)
		switch {
		case l.hidden, fields[i] == contact.FieldNotLead, strings.HasPrefix(string(fields[i]), "metadata."):
		case email < 0 && contact.LooksLikeEmail(text):
			email = i
			k.warnings.Add("email", field.ContactByValue, "was recognised by its value: no field has a known name")
		case phone < 0 && !strings.HasSuffix(strings.ToLower(l.key()), "id") && contact.LooksLikePhone(text, region):
			phone = i
			k.warnings.Add("phone", field.ContactByValue, "was recognised by its value: no field has a known name")
		}
	}
	return email, phone
}

// nameOf returns the fields of the person's name: the name, or the first and the last name, beside the contact if there
// are several. Hidden ones count last.
func nameOf(leaves []leaf, fields []contact.Field, used []bool, group string) []int {
	find := func(kind contact.Field, of func(leaf) bool) int {
		for i, f := range fields {
			if f == kind && !used[i] && of(leaves[i]) && !contact.Placeholder(textOf(leaves[i].value)) {
				return i
			}
		}
		return -1
	}
	for _, of := range []func(leaf) bool{
		func(l leaf) bool { return !l.hidden && l.group() == group },
		func(l leaf) bool { return !l.hidden },
		func(l leaf) bool { return l.hidden },
	} {
		if i := find(contact.FieldName, of); i >= 0 {
			return []int{i}
		}
		parts := slices.DeleteFunc([]int{find(contact.FieldFirstName, of), find(contact.FieldLastName, of)},
			func(i int) bool { return i < 0 })
		if len(parts) > 0 {
			return parts
		}
	}
	return nil
}

func joined(before, value any) any {
	if before == nil {
		return value
	}
	return textOf(before) + " " + textOf(value)
}

// textOf returns a text, the digits of a number, or the first of several texts.
func textOf(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case []any:
		if len(value) > 0 {
			return textOf(value[0])
		}
		return ""
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	case nil, map[string]any:
		return ""
	}
	return fmt.Sprint(value)
}
