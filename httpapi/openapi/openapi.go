// Package openapi is the description of the API: an OpenAPI 3.1 document, and a page that shows it.
//
// The document is written by hand, in openapi.yaml. Tests hold every answer of the service against it.
package openapi

import (
	"bytes"
	_ "embed"
)

//go:generate go run ./generate

//go:embed openapi.json
var document []byte

// Document is the API's description as JSON, for a service with a base path, empty or such as /crm.
func Document(base string) []byte {
	if base == "" {
		return document
	}
	return bytes.Replace(document, []byte(`"url": "/"`), []byte(`"url": "`+base+`"`), 1)
}
