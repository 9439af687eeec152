package openapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"slices"

	"github.com/go-json-experiment/json"
)

var (
	//go:embed page.html
	layout string
	//go:embed page.css
	stylesheet string
)

// The page asks nobody for anything: its style is in it, and it has no script.
type page struct {
	Style    template.CSS
	Base     string
	Title    string
	Summary  string
	About    template.HTML
	Groups   []group
	Webhooks []call
	Schemas  []shape
}

type group struct {
	Name  string
	About template.HTML
	Calls []call
}

// call is an operation, of a caller or of a webhook.
type call struct {
	ID          string
	Method      string
	Path        string
	Summary     string
	About       template.HTML
	Credentials []string
	Parameters  []field
	Body        *field
	Examples    []sample
	Answers     []reply
}

type reply struct {
	Status   string
	About    template.HTML
	Headers  []field
	Bodies   []field
	Examples []sample
}

// sample is something to copy.
type sample struct{ Title, Text string }

// shape is a schema.
type shape struct {
	Name   string
	Type   string
	About  template.HTML
	Fields []field
}

// field is a member of an object, a parameter or a header.
type field struct {
	Name     string
	In       string // of a parameter
	Required bool
	Type     string
	Link     string // the shape that it has
	About    template.HTML
}

// Page is the document as a page to read, and the Content-Security-Policy that lets it have its style and nothing else.
func Page(base string) (html []byte, policy string) {
	var s spec
	if err := json.Unmarshal(document, &s); err != nil {
		panic("openapi.json: " + err.Error()) // it is in the program, and tests have read it
	}
	var out bytes.Buffer
	p := s.page(base)
	if err := template.Must(template.New("page").Parse(layout)).Execute(&out, p); err != nil {
		panic("the page of openapi.json: " + err.Error()) // likewise
	}
	sum := sha256.Sum256([]byte(p.Style))
	return out.Bytes(), "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

func (s *spec) page(base string) page {
	p := page{
		Style: template.CSS(stylesheet), Base: base, //nolint:gosec // ours
		Title: s.Info.Title, Summary: s.Info.Summary, About: rich(s.Info.Description),
	}
	for _, tag := range s.Tags {
		p.Groups = append(p.Groups, group{Name: tag.Name, About: rich(tag.Description)})
	}
	for _, path := range s.Paths {
		for _, one := range path.Value.methods() {
			c := s.call(path.Name, one.Name, path.Value.Parameters, one.Value)
			i := slices.IndexFunc(p.Groups, func(g group) bool { return slices.Contains(one.Value.Tags, g.Name) })
			p.Groups[i].Calls = append(p.Groups[i].Calls, c)
		}
	}
	for _, hook := range s.Webhooks {
		p.Webhooks = append(p.Webhooks, s.call(hook.Name, "POST", nil, hook.Value.Post))
	}
	for _, one := range s.Components.Schemas {
		p.Schemas = append(p.Schemas, s.shape(one.Name, one.Value))
	}
	return p
}

func (s *spec) call(path, method string, shared []parameter, o *operation) call {
	c := call{
		ID: o.ID, Method: method, Path: path, Summary: o.Summary, About: rich(o.Description),
		Credentials: credentials(o),
	}
	parameters := slices.Concat(shared, o.Parameters)
	for i, p := range parameters {
		parameters[i] = s.Components.Parameters.at(p.Ref, p)
		p = parameters[i]
		f := s.field(p.Name, p.Schema)
		f.In, f.Required, f.About = p.In, p.Required, rich(p.Description)
		c.Parameters = append(c.Parameters, f)
	}
	for _, body := range o.RequestBody.Content {
		f := s.field(body.Name, body.Value.Schema)
		c.Body = &f
	}
	c.Examples = s.curls(method, path, parameters, o)
	for _, one := range o.Responses {
		c.Answers = append(c.Answers, s.reply(one.Name, s.Components.Responses.at(one.Value.Ref, one.Value)))
	}
	return c
}

func (s *spec) reply(status string, r response) reply {
	answer := reply{Status: status, About: rich(r.Description)}
	for _, h := range r.Headers {
		resolved := s.Components.Headers.at(h.Value.Ref, h.Value)
		f := s.field(h.Name, resolved.Schema)
		f.About = rich(resolved.Description)
		answer.Headers = append(answer.Headers, f)
	}
	for _, body := range r.Content {
		answer.Bodies = append(answer.Bodies, s.field(body.Name, body.Value.Schema))
		for _, e := range body.Value.Examples {
			resolved := s.Components.Examples.at(e.Value.Ref, e.Value)
			answer.Examples = append(answer.Examples, sample{resolved.Summary, indented(resolved.Value)})
		}
	}
	return answer
}

// credentials are what a call may be made with.
func credentials(o *operation) []string {
	var all []string
	for _, one := range o.Security {
		for scheme, scopes := range one {
			if scheme == "apiToken" {
				all = append(all, "API token")
				continue
			}
			for _, scope := range scopes {
				all = append(all, "JWT "+scope)
			}
		}
	}
	return all
}

func (s *spec) shape(name string, sc schema) shape {
	sh := shape{Name: name, Type: typeOf(sc), About: rich(sc.Description)}
	for _, one := range sc.Properties {
		f := s.field(one.Name, one.Value)
		f.Required = slices.Contains(sc.Required, one.Name)
		sh.Fields = append(sh.Fields, f)
	}
	return sh
}
