package console

import (
	"net/url"
	"regexp"
	"strings"
	"time"
)

// call gets the data of a page without the console: a request to the API, or a command.
type call struct {
	About string
	Text  string // for a shell
	Scope string // that it requires; empty: none
	Note  string // how its result differs from the page
	Local bool   // it is a command, which runs where the service does
}

// get is a request to the API. Pairs are names of parameters and their values; those without a value are left out.
func (v *visit) get(scope, about, path string, pairs ...string) call {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	address := v.service() + path
	if len(values) > 0 {
		address += "?" + strings.ReplaceAll(values.Encode(), "%3A", ":") // as people write times
	}
	text := "curl "
	if scope != "" {
		text += `-H "Authorization: Bearer $TOKEN" `
	}
	return call{About: about, Text: text + "'" + quoted(address) + "'", Scope: scope}
}

// post is a request to the API with a JSON body.
func (v *visit) post(scope, about, path string, body any) call {
	return v.sending("", scope, about, path, body)
}

// put likewise sets things.
func (v *visit) put(scope, about, path string, body any) call {
	return v.sending("-X PUT ", scope, about, path, body)
}

// patch likewise changes a thing.
func (v *visit) patch(scope, about, path string, body any) call {
	return v.sending("-X PATCH ", scope, about, path, body)
}

func (v *visit) sending(method, scope, about, path string, body any) call {
	return call{
		About: about, Scope: scope,
		Text: "curl " + method + `-H "Authorization: Bearer $TOKEN" -H 'Content-Type: ` +
			`application/json' -d '` + quoted(string(mustJSON(body))) + `' '` +
			quoted(v.service()+path) + "'",
	}
}

// program is a subcommand of leadlog for the account. Pairs are flags and their values; those without a value are left
// out.
func (v *visit) program(scope, about, command string, pairs ...string) call {
	text := "leadlog " + command
	pairs = append([]string{"--account", v.identity.Account}, pairs...)
	for i := 0; i < len(pairs); i += 2 {
		if value := pairs[i+1]; value != "" {
			if !bare.MatchString(value) {
				value = "'" + quoted(value) + "'"
			}
			text += " " + pairs[i] + " " + value
		}
	}
	return call{About: about, Text: text, Scope: scope, Local: true}
}

// bare is a word that means the same to a shell without quotes.
var bare = regexp.MustCompile(`^[A-Za-z0-9_.:/+-]+$`)

// quoted is a text for between single quotes.
func quoted(text string) string { return strings.ReplaceAll(text, "'", `'\''`) }

// withNote notes how the result differs from the page.
func (c call) withNote(note string) call {
	c.Note = note
	return c
}

// Notes of calls.
const (
	recorded    = "The export is recorded in the audit log."
	oldestFirst = "The answer has the oldest first."
	unmasked    = "The answer has personal data. Each lead that is read is recorded in the audit log."
)

// calls are those that the user may make.
func (v *visit) calls(all ...call) (may []call) {
	for _, c := range all {
		if c.Text != "" && v.identity.May(c.Scope) {
			may = append(may, c)
		}
	}
	return may
}

// service is the address that the paths of the API follow.
func (v *visit) service() string { return v.origin() + strings.TrimSuffix(v.Base, "/console") }

// stamp is a time as the API and commands read it; empty for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
