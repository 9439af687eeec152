package openapi

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The document, as far as the page shows it. Members stand in the order in which they were written.
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

// at is what a reference leads to, or the value itself when there is none.
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
	all := ordered[*operation]{{"POST", p.Post}, {"PUT", p.Put}, {"GET", p.Get}, {"PATCH", p.Patch}, {"DELETE", p.Delete}}
	return slices.DeleteFunc(all, func(one member[*operation]) bool { return one.Value == nil })
}
