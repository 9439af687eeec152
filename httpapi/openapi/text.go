package openapi

import (
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	codeMark = regexp.MustCompile("`([^`]+)`")
	boldMark = regexp.MustCompile(`\*\*([^*]+)\*\*`)
)

// rich makes HTML of as much Markdown as the document uses: paragraphs, code and what is bold.
func rich(text string) template.HTML {
	var out strings.Builder
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		safe := template.HTMLEscapeString(paragraph)
		safe = codeMark.ReplaceAllString(safe, "<code>$1</code>")
		safe = boldMark.ReplaceAllString(safe, "<strong>$1</strong>")
		out.WriteString("<p>" + safe + "</p>")
	}
	return template.HTML(out.String()) //nolint:gosec // escaped above
}

// field tells of a member by its schema.
func (s *spec) field(name string, sc schema) field {
	f := field{Name: name, About: rich(sc.Description)}
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
		f.About = rich(s.Components.Schemas.at(inner.Ref, inner).Description)
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
		text = strings.Join(strings.FieldsFunc(string(sc.Type), func(r rune) bool { return strings.ContainsRune("[]\", \n", r) }), " or ")
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

// curls are the calls that the examples of an operation make, ready for a shell that has URL, TOKEN and JWT.
func (s *spec) curls(method, path string, parameters []parameter, o *operation) []sample {
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
			if resolved.Value.Kind() == jsontext.KindString { // lines, whose ends curl would take away
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

// indented is JSON for people. A string is as it is: lines of JSON.
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
