package contact

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Field is what the name of a column or of a form's field means: a field of a capture, metadata.KEY, consent.PURPOSE,
// optOut.PURPOSE, or one of those below that a capture has in another form.
type Field string

// Fields that a name can mean, beside metadata.KEY.
const (
	FieldName         Field = "name"
	FieldFirstName    Field = "firstName"
	FieldLastName     Field = "lastName"
	FieldEmail        Field = "email"
	FieldOtherEmail   Field = "otherEmail"   // a further one
	FieldMobile       Field = "mobile"       // a phone that a person carries
	FieldPhone        Field = "phone"        // beside a mobile often that of an office
	FieldOtherPhone   Field = "otherPhone"   // a further one
	FieldPhoneCountry Field = "phoneCountry" // of the phone, by RegionOf
	FieldCountry      Field = "country"      // of the person, by RegionOf
	FieldStatus       Field = "status"
	FieldTemperature  Field = "leadTemperature"
	FieldValue        Field = "opportunityValue"
	FieldReceivedAt   Field = "receivedAt" // when the person came
	FieldConsent      Field = "consent"    // whose purpose is the name
	FieldVisitorID    Field = "visitorId"
	FieldSource       Field = "metadata.source"
	// FieldNotPerson is a contact, or a name, of something else than the person, such as a fax or a company. It is a
	// custom field, but can be all that is known of a lead.
	FieldNotPerson Field = "notPerson"
	// FieldNotLead is a contact, or a name, of who handles or receives a post or of another person, such as an owner, a
	// recipient or a friend, or a number that is no phone, such as that of an order. It is never the lead's.
	FieldNotLead Field = "notLead"

	nameOrFirst Field = "nameOrFirst" // the first name beside a last name, else the name: Nombre
	nameOrLast  Field = "nameOrLast"  // the last name beside a first name, else the name: Nom
)

// Kind returns the kind of contact that a field has, FieldEmail or FieldPhone; empty if it has none.
func (f Field) Kind() Field {
	switch f {
	case FieldEmail, FieldOtherEmail:
		return FieldEmail
	case FieldMobile, FieldPhone, FieldOtherPhone:
		return FieldPhone
	}
	return ""
}

// Consent returns the purpose of a consent, which FieldConsent does not know, and whether the field has its withdrawal.
func (f Field) Consent() (purpose string, optOut, is bool) {
	if f == FieldConsent {
		return "", false, true
	}
	if purpose, is = strings.CutPrefix(string(f), "consent."); is {
		return purpose, false, true
	}
	purpose, optOut = strings.CutPrefix(string(f), "optOut.")
	if !optOut {
		return "", false, false
	}
	return purpose, true, true
}

// Granted reads the value of a consent: yes or no in the languages of FieldOf, a mark, or the words of an export.
func Granted(text string) (granted, known bool) {
	switch trim(text) {
	case "✓", "✔", "☑", "✅":
		return true, true
	case "✗", "✘", "☐", "❌":
		return false, true
	}
	granted, known = namedBy.granted[NameKey(text)]
	return granted, known
}

// Rank orders the fields that have one kind of contact, or a country: of several in one arrival, the lowest counts
// first.
func (f Field) Rank() int {
	switch f {
	case FieldPhone, FieldCountry:
		return 1
	case FieldOtherPhone, FieldOtherEmail:
		return 2
	}
	return 0
}

// FieldsOf returns what each of the names of one table or form means, empty for a name that is not known. Some names
// are told by the others: Nom is the last name beside Prénom, else the whole one.
func FieldsOf(names []string) []Field {
	fields := make([]Field, len(names))
	for i, name := range names {
		fields[i] = find(name)
	}
	hasFirst, hasLast := slices.Contains(fields, FieldFirstName), slices.Contains(fields, FieldLastName)
	for i, field := range fields {
		switch {
		case field == "" && NameKey(names[i]) == "work" && slices.Contains(fields, FieldMobile): // of Freshsales
			fields[i] = FieldPhone
		case field == nameOrFirst && hasLast:
			fields[i] = FieldFirstName
		case field == nameOrLast && hasFirst:
			fields[i] = FieldLastName
		default:
			fields[i] = alone(field)
		}
	}
	return fields
}

func alone(field Field) Field {
	if field == nameOrFirst || field == nameOrLast {
		return FieldName
	}
	return field
}

// FieldOf returns what the name of a column, or of a form's field, means: in English, German, French, Spanish,
// Portuguese, Italian, Dutch and Hindi, as CRMs, advertising platforms and address books export it, and as form
// plugins nest it (form_fields[email], fields[name][value], q3_email, your-phone). It ignores case, marks, spaces,
// punctuation and remarks in brackets.
func FieldOf(name string) (Field, bool) {
	field := alone(find(name))
	return field, field != ""
}

func find(name string) Field {
	const maxName = 300 // bytes; a longer one is a question
	if len(name) > maxName {
		return ""
	}
	outer, inner := cutBrackets(name)
	if len(inner) > 0 {
		// q3_name[first] is a first name, form_fields[email] an email, and Phone [required] a phone.
		if field := fieldOfKey(NameKey(outer + strings.Join(inner, ""))); field != "" {
			return field
		}
		for i, part := range slices.Backward(inner) {
			if key := NameKey(part); key != "value" && key != "rawvalue" {
				if field := fieldOfKey(key); field != "" {
					return within(field, outer, inner[:i])
				}
			}
		}
	}
	return fieldOfKey(NameKey(outer))
}

// within returns what a field means in the objects around it: the contacts and names of an owner or a company are not
// the person's.
func within(field Field, outer string, objects []string) Field {
	if field.Kind() == "" && !slices.Contains(ofPerson, field) {
		return field
	}
	for _, object := range append([]string{outer}, objects...) {
		if of := fieldOfKey(NameKey(object)); of == FieldNotPerson || of == FieldNotLead {
			return of
		}
	}
	return field
}

// cutBrackets removes remarks in round brackets, and splits a name like fields[name][value].
func cutBrackets(name string) (outer string, inner []string) {
	name = WithoutRemarks(name)
	outer, rest, nested := strings.Cut(name, "[")
	for nested {
		var part string
		part, rest, _ = strings.Cut(rest, "]")
		inner = append(inner, part)
		_, rest, nested = strings.Cut(rest, "[")
	}
	return outer, inner
}

// WithoutRemarks removes round brackets and what follows in them, unless nothing else is left.
func WithoutRemarks(name string) string {
	if !strings.ContainsAny(name, "(（") {
		return name
	}
	depth := 0
	short := strings.Map(func(r rune) rune {
		switch r {
		case '(', '（':
			depth++
			return -1
		case ')', '）':
			depth = max(depth-1, 0)
			return -1
		}
		if depth > 0 {
			return -1
		}
		return r
	}, name)
	if IsBlank(short) {
		return name
	}
	return short
}

// NameKey reduces a name to lower-case letters without marks, and digits, so that spellings of one name are equal.
func NameKey(name string) string {
	if !IsASCII(name) {
		name = norm.NFKD.String(name)
	}
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case r < 0x80:
			return -1
		case unicode.IsLetter(r), unicode.Is(unicode.Mc, r):
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}

func fieldOfKey(key string) Field {
	if field := namedBy.field(key); field != "" {
		return field
	}
	for _, short := range withoutPrefix(key) {
		switch field := namedBy.field(short); {
		case field.Kind() != "":
			return field
		case slices.Contains(ofPerson, field):
			return field
		}
		if _, _, is := namedBy.field(short).Consent(); is {
			return namedBy.field(short)
		}
	}
	return ""
}

// ofPerson are the fields, beside contacts, whose names other words may precede.
var ofPerson = []Field{
	FieldName, FieldFirstName, FieldLastName, nameOrFirst, nameOrLast, FieldCountry, FieldPhoneCountry,
}

// field returns the field that a key names. Of contacts a digit may follow: email2 is a further one, and phone1 the
// first.
func (n names) field(key string) Field {
	if field, known := n.fields[key]; known {
		return field
	}
	base := strings.TrimRight(key, "0123456789")
	field := n.fields[base]
	switch digit := key[len(base):]; {
	case len(digit) != 1, field.Kind() == "":
		return ""
	case digit <= "1":
		return field
	case field.Kind() == FieldEmail:
		return FieldOtherEmail
	}
	return FieldOtherPhone
}

// withoutPrefix returns a key without words that may precede a name, and without a number of JotForm (q3_email) or
// HubSpot (0-1/email).
func withoutPrefix(key string) (short []string) {
	if rest, found := strings.CutPrefix(key, "q"); found {
		if number := strings.TrimLeft(rest, "0123456789"); number != "" && len(number) < len(rest) {
			short = append(short, number)
		}
	}
	if rest, found := strings.CutPrefix(key, "01"); found {
		short = append(short, rest)
	}
	for _, word := range namedBy.before {
		if rest, found := strings.CutPrefix(key, word); found && rest != "" {
			short = append(short, rest)
		}
	}
	return short
}

//go:embed dictionary.tsv
var dictionaryTable string

// names are the lines of the dictionary, by NameKey.
type names struct {
	fields  map[string]Field
	granted map[string]bool // values of consents
	before  []string
}

var namedBy = func() names {
	parsed, err := parseDictionary(dictionaryTable)
	if err != nil {
		panic(err)
	}
	return parsed
}()

func parseDictionary(table string) (names, error) {
	parsed := names{granted: map[string]bool{}}
	fields, err := ParseDictionary[Field]("dictionary.tsv", table, func(field, key string) (special bool) {
		switch field {
		case "before":
			parsed.before = append(parsed.before, key)
		case "yes", "no":
			parsed.granted[key] = field == "yes"
		default:
			return false
		}
		return true
	})
	parsed.fields = fields
	return parsed, err
}

// ParseDictionary reads a table of names. Each line has a field, a language or program, and names with commas between
// them; lines that begin with # are comments. It returns the fields by the NameKey of their names, of which each has
// one, without the lines that special takes. File is the table's name in errors.
func ParseDictionary[F ~string](
	file, table string, special func(field, key string) bool,
) (fields map[string]F, err error) {
	fields = make(map[string]F, 1024)
	number := 0
	for line := range strings.Lines(table) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 3 {
			return fields, fmt.Errorf("%s: line %d: has %d columns, not 3", file, number, len(columns))
		}
		for name := range strings.SplitSeq(columns[2], ",") {
			key := NameKey(name)
			if special(columns[0], key) {
				continue
			}
			if other, known := fields[key]; key == "" || known && other != F(columns[0]) {
				name = strings.TrimSpace(name)
				return fields, fmt.Errorf("%s: line %d: %q is blank, or %s too", file, number, name, other)
			}
			fields[key] = F(columns[0])
		}
	}
	return fields, nil
}
