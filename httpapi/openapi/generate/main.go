// Generate converts openapi.yaml to openapi.json, in the same order, without anchors and comments.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

func main() {
	if err := generate("openapi.yaml", "openapi.json"); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	document, err := convert(text)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return os.WriteFile(to, document, 0o644) //nolint:gosec // it is public
}

// convert writes a YAML document as JSON.
func convert(text []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := jsontext.NewEncoder(&out, jsontext.WithIndent("  "))
	if err := write(encoder, &root); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func write(to *jsontext.Encoder, node *yaml.Node) error {
	switch node.Kind {
	case yaml.DocumentNode:
		return write(to, node.Content[0])
	case yaml.AliasNode:
		return write(to, node.Alias)
	case yaml.MappingNode:
		return enclosed(to, jsontext.BeginObject, node.Content, jsontext.EndObject)
	case yaml.SequenceNode:
		return enclosed(to, jsontext.BeginArray, node.Content, jsontext.EndArray)
	}
	switch node.ShortTag() {
	case "!!null":
		return to.WriteToken(jsontext.Null)
	case "!!bool", "!!int", "!!float":
		return to.WriteValue(jsontext.Value(node.Value))
	}
	return to.WriteToken(jsontext.String(node.Value))
}

func enclosed(to *jsontext.Encoder, begin jsontext.Token, content []*yaml.Node, end jsontext.Token) error {
	if err := to.WriteToken(begin); err != nil {
		return err
	}
	for _, node := range content {
		if err := write(to, node); err != nil {
			return fmt.Errorf("line %d: %w", node.Line, err)
		}
	}
	return to.WriteToken(end)
}
