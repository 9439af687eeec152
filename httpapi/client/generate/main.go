// Generate makes the client of the API's document by oapi-codegen.
//
// The generator writes an unused type and parser for every header and failure of every operation.
// So it gets the document without response headers and with all failures of an operation as one.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"

	"github.com/go-json-experiment/json"

	"github.com/leadlog/leadlog/httpapi/openapi"
)

const generator = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"

const output = "client.gen.go"

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate() error {
	document := openapi.Document("")
	small, err := simplified(document)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "openapi-*.json")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if err := os.WriteFile(file.Name(), small, 0o600); err != nil {
		return err
	}
	run := exec.Command("go", "run", generator, "-config", "config.yaml", file.Name()) //nolint:gosec // constants
	run.Stdout, run.Stderr = os.Stdout, os.Stderr
	if err := run.Run(); err != nil {
		return err
	}
	code, err := os.ReadFile(output)
	if err != nil {
		return err
	}
	stamp := fmt.Sprintf("// Of openapi.json with the SHA-256 %x.\n\n", sha256.Sum256(document))
	code = bytes.Replace(code, []byte("// Package client provides primitives to interact with the openapi HTTP API.\n//\n"), []byte(stamp), 1)
	code = bytes.Replace(code, []byte("DO NOT EDIT.\n"), []byte("DO NOT EDIT.\n\n"), 1) // no documentation of the package
	return os.WriteFile(output, code, 0o644)                                            //nolint:gosec // source code
}

// simplified is the document as the generator gets it.
func simplified(document []byte) ([]byte, error) {
	var root map[string]any
	if err := json.Unmarshal(document, &root); err != nil {
		return nil, err
	}
	delete(root, "webhooks")
	paths := at(root, "paths")
	for _, path := range []string{"/metrics", "/docs", "/openapi.json"} {
		delete(paths, path)
	}
	for _, item := range paths {
		for method, operation := range item.(map[string]any) {
			if method != "parameters" {
				joinFailures(at(operation, "responses"))
			}
		}
	}
	components := at(root, "components")
	delete(components, "responses")
	delete(components, "examples")
	delete(components, "headers")
	plain(components)
	return json.Marshal(root, json.Deterministic(true))
}

// joinFailures leaves of an operation's answers those that are none, and one for all failures.
func joinFailures(responses map[string]any) {
	for status, response := range responses {
		if status[0] == '2' {
			delete(response.(map[string]any), "headers")
			for _, media := range at(response, "content") {
				delete(media.(map[string]any), "examples")
			}
			continue
		}
		delete(responses, status)
	}
	responses["default"] = map[string]any{"description": "A failure.", "content": map[string]any{
		"application/json": map[string]any{"schema": map[string]any{"$ref": "#/components/schemas/Failure"}},
	}}
}

// plain makes booleans of those that are always true or always false: a type for each would be no help. Failures have
// the fields that are wrong, if any.
func plain(components map[string]any) {
	for _, schema := range at(components, "schemas") {
		if success, ok := at(schema, "properties")["success"].(map[string]any); ok {
			delete(success, "const")
		}
	}
	at(components, "schemas", "Failure", "properties")["errors"] = map[string]any{
		"type": "array", "items": map[string]any{"$ref": "#/components/schemas/FieldError"},
	}
}

func at(value any, path ...string) map[string]any {
	object, _ := value.(map[string]any)
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	return object
}
