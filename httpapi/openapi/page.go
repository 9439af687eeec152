package openapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var (
	//go:embed page.html
	layout string
	//go:embed page.css
	stylesheet string
)

// The page is self-contained: its style is inline, and it has no script.
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

// Page returns the document as an HTML page, and its Content-Security-Policy, which allows only its style.
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
		Title: s.Info.Title, Summary: s.Info.Summary, About: renderMarkdown(s.Info.Description),
	}
	for _, tag := range s.Tags {
		p.Groups = append(p.Groups, group{Name: tag.Name, About: renderMarkdown(tag.Description)})
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
		ID: o.ID, Method: method, Path: path, Summary: o.Summary, About: renderMarkdown(o.Description),
		Credentials: credentials(o),
	}
	parameters := slices.Concat(shared, o.Parameters)
	for i, p := range parameters {
		parameters[i] = s.Components.Parameters.at(p.Ref, p)
		p = parameters[i]
		f := s.field(p.Name, p.Schema)
		f.In, f.Required, f.About = p.In, p.Required, renderMarkdown(p.Description)
		c.Parameters = append(c.Parameters, f)
	}
	for _, body := range o.RequestBody.Content {
		f := s.field(body.Name, body.Value.Schema)
		c.Body = &f
	}
	c.Examples = s.curlSamples(method, path, parameters, o)
	for _, one := range o.Responses {
		c.Answers = append(c.Answers, s.reply(one.Name, s.Components.Responses.at(one.Value.Ref, one.Value)))
	}
	return c
}

func (s *spec) reply(status string, r response) reply {
	answer := reply{Status: status, About: renderMarkdown(r.Description)}
	for _, h := range r.Headers {
		resolved := s.Components.Headers.at(h.Value.Ref, h.Value)
		f := s.field(h.Name, resolved.Schema)
		f.About = renderMarkdown(resolved.Description)
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

// credentials are the credentials that an operation accepts.
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
	sh := shape{Name: name, Type: typeOf(sc), About: renderMarkdown(sc.Description)}
	for _, one := range sc.Properties {
		f := s.field(one.Name, one.Value)
		f.Required = slices.Contains(sc.Required, one.Name)
		sh.Fields = append(sh.Fields, f)
	}
	return sh
}

// The document, as far as the page shows it. Members keep the order of the file.
type (
	spec struct {
		Info struct {
			Title       string `json:"title"`
			Summary     string `json:"summary"`
			Description string `json:"description"`
		} `json:"info"`
		Tags       []tag             `json:"tags"`
		Paths      ordered[pathItem] `json:"paths"`
		Webhooks   ordered[pathItem] `json:"webhooks"`
		Components struct {
			Schemas    ordered[schema]    `json:"schemas"`
			Responses  ordered[response]  `json:"responses"`
			Parameters ordered[parameter] `json:"parameters"`
			Headers    ordered[header]    `json:"headers"`
			Examples   ordered[example]   `json:"examples"`
		} `json:"components"`
	}
	tag struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	pathItem struct {
		Parameters []parameter `json:"parameters"`
		Get        *operation  `json:"get"`
		Post       *operation  `json:"post"`
		Put        *operation  `json:"put"`
		Patch      *operation  `json:"patch"`
		Delete     *operation  `json:"delete"`
	}
	operation struct {
		ID          string                `json:"operationId"`
		Tags        []string              `json:"tags"`
		Summary     string                `json:"summary"`
		Description string                `json:"description"`
		Security    []map[string][]string `json:"security"`
		Parameters  []parameter           `json:"parameters"`
		RequestBody struct{ content }     `json:"requestBody"`
		Responses   ordered[response]     `json:"responses"`
	}
	parameter struct {
		Ref         string         `json:"$ref"`
		Name        string         `json:"name"`
		In          string         `json:"in"`
		Required    bool           `json:"required"`
		Description string         `json:"description"`
		Schema      schema         `json:"schema"`
		Example     jsontext.Value `json:"example"`
	}
	header struct {
		Ref         string `json:"$ref"`
		Description string `json:"description"`
		Schema      schema `json:"schema"`
	}
	response struct {
		Ref         string          `json:"$ref"`
		Description string          `json:"description"`
		Headers     ordered[header] `json:"headers"`
		content
	}
	content struct {
		Content ordered[struct {
			Schema   schema           `json:"schema"`
			Examples ordered[example] `json:"examples"`
		}] `json:"content"`
	}
	example struct {
		Ref     string         `json:"$ref"`
		Summary string         `json:"summary"`
		Value   jsontext.Value `json:"value"`
	}
	schema struct {
		Ref         string          `json:"$ref"`
		Type        jsontext.Value  `json:"type"` // one name, or several
		Description string          `json:"description"`
		Format      string          `json:"format"`
		Pattern     string          `json:"pattern"`
		Enum        []any           `json:"enum"`
		Const       any             `json:"const"`
		Default     any             `json:"default"`
		Minimum     jsontext.Value  `json:"minimum"`
		Maximum     jsontext.Value  `json:"maximum"`
		MaxLength   int             `json:"maxLength"`
		Required    []string        `json:"required"`
		Properties  ordered[schema] `json:"properties"`
		Items       *schema         `json:"items"`
	}
)

// ordered is a JSON object whose members keep their order.
type ordered[T any] []member[T]

type member[T any] struct {
	Name  string
	Value T
}

// UnmarshalJSONFrom reads an object.
func (o *ordered[T]) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	if _, err := from.ReadToken(); err != nil { // the opening brace
		return err
	}
	for from.PeekKind() == jsontext.KindString {
		var one member[T]
		name, err := from.ReadToken()
		if err != nil {
			return err
		}
		one.Name = name.String()
		if err := json.UnmarshalDecode(from, &one.Value); err != nil {
			return err
		}
		*o = append(*o, one)
	}
	_, err := from.ReadToken() // the closing one
	return err
}

// at returns the target of a reference, or the value itself if there is none.
func (o ordered[T]) at(ref string, itself T) T {
	name := ref[strings.LastIndexByte(ref, '/')+1:]
	for _, one := range o {
		if ref != "" && one.Name == name {
			return one.Value
		}
	}
	return itself
}

// methods are the operations of a path, with their methods.
func (p pathItem) methods() ordered[*operation] {
	all := ordered[*operation]{
		{"POST", p.Post}, {"PUT", p.Put}, {"GET", p.Get}, {"PATCH", p.Patch}, {"DELETE", p.Delete},
	}
	return slices.DeleteFunc(all, func(one member[*operation]) bool { return one.Value == nil })
}

var (
	codeMark = regexp.MustCompile("`([^`]+)`")
	boldMark = regexp.MustCompile(`\*\*([^*]+)\*\*`)
)

// renderMarkdown converts the Markdown that the document uses to HTML: paragraphs, code and bold text.
func renderMarkdown(text string) template.HTML {
	var out strings.Builder
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		safe := template.HTMLEscapeString(paragraph)
		safe = codeMark.ReplaceAllString(safe, "<code>$1</code>")
		safe = boldMark.ReplaceAllString(safe, "<strong>$1</strong>")
		out.WriteString("<p>" + safe + "</p>")
	}
	return template.HTML(out.String()) //nolint:gosec // escaped above
}

// field describes a member by its schema.
func (s *spec) field(name string, sc schema) field {
	f := field{Name: name, About: renderMarkdown(sc.Description)}
	inner := sc
	for inner.Ref == "" && inner.Items != nil {
		inner = *inner.Items
		f.Type = "array of "
	}
	if inner.Ref == "" {
		f.Type += typeOf(inner)
		return f
	}
	f.Link = inner.Ref[strings.LastIndexByte(inner.Ref, '/')+1:]
	if sc.Description == "" {
		f.About = renderMarkdown(s.Components.Schemas.at(inner.Ref, inner).Description)
	}
	return f
}

// typeOf is a schema in words.
func typeOf(sc schema) string {
	text := "any"
	switch sc.Type.Kind() {
	case jsontext.KindString:
		text = strings.Trim(string(sc.Type), `"`)
	case jsontext.KindBeginArray:
		text = strings.Join(strings.FieldsFunc(string(sc.Type), func(r rune) bool {
			return strings.ContainsRune("[]\", \n", r)
		}), " or ")
	}
	if sc.Format != "" {
		text += " (" + sc.Format + ")"
	}
	switch {
	case sc.Const != nil:
		text += fmt.Sprintf(", always %v", sc.Const)
	case len(sc.Enum) > 0:
		names := make([]string, len(sc.Enum))
		for i, value := range sc.Enum {
			names[i] = fmt.Sprint(value)
		}
		text += ", one of " + strings.Join(names, ", ")
	case len(sc.Minimum) > 0 && len(sc.Maximum) > 0:
		text += ", " + string(sc.Minimum) + " to " + string(sc.Maximum)
	case len(sc.Minimum) > 0:
		text += ", at least " + string(sc.Minimum)
	case sc.MaxLength > 0:
		text += fmt.Sprintf(", at most %d characters", sc.MaxLength)
	}
	if sc.Default != nil {
		text += fmt.Sprintf("; %v when it is not given", sc.Default)
	}
	return text
}

// curlSamples are the calls that the examples of an operation make, ready for a shell that has URL, TOKEN and JWT.
func (s *spec) curlSamples(method, path string, parameters []parameter, o *operation) []sample {
	line := "curl -sS"
	if method != "GET" && method != "POST" {
		line += " -X " + method
	}
	if method == "POST" && len(o.RequestBody.Content) == 0 {
		line += " -X POST"
	}
	query := make(url.Values)
	for _, p := range parameters {
		example := strings.Trim(string(p.Example), `"`)
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(example))
		case p.Required:
			query.Set(p.Name, example)
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	line += ` "$URL` + path + `"`
	if accepted := credentials(o); len(accepted) > 0 {
		variable := "$JWT"
		if accepted[0] == "API token" {
			variable = "$TOKEN"
		}
		line += " \\\n  -H \"Authorization: Bearer " + variable + `"`
	}
	var all []sample
	for _, body := range o.RequestBody.Content {
		for _, e := range body.Value.Examples {
			resolved := s.Components.Examples.at(e.Value.Ref, e.Value)
			flag, text := "-d", indented(resolved.Value)
			if resolved.Value.Kind() == jsontext.KindString { // lines, whose ends curl would remove
				flag = "--data-binary"
			}
			all = append(all, sample{resolved.Summary, line + " \\\n  -H 'Content-Type: " + body.Name + "' \\\n  " +
				flag + " '" + strings.ReplaceAll(text, "'", `'\''`) + "'"})
		}
	}
	if len(all) == 0 {
		all = []sample{{Text: line}}
	}
	return all
}

// indented returns indented JSON. A string is returned without quotes: it is lines of JSON.
func indented(value jsontext.Value) string {
	if lines, err := jsontext.AppendUnquote(nil, value); err == nil {
		return string(lines)
	}
	copied := value.Clone()
	if err := copied.Indent(jsontext.WithIndent("  ")); err != nil {
		panic("openapi.json: " + err.Error()) // tests have read it
	}
	return string(copied)
}
