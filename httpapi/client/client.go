// Package client calls the API from Go. It is generated from the API's document.
//
//	c, err := client.New("https://crm.example.com", token)
//	answer, err := c.CaptureLeadWithResponse(ctx, nil, client.LeadArrival{Phone: "98765 43210"})
//	switch {
//	case answer.JSON201 != nil: // a new lead
//	case answer.JSON200 != nil: // a known person
//	default: // answer.JSONDefault says what is wrong
//	}
//
// Headers, such as X-Log-Position, are in HTTPResponse. A GET given its value as MinPosition sees what was written.
package client

import (
	"context"
	"net/http"
)

//go:generate go run ./generate

// New returns a client that sends a credential, an API token or a JWT, with each request. Server is the URL of the service, with
// its base path if it has one.
func New(server, credential string, options ...ClientOption) (*ClientWithResponses, error) {
	bearer := func(_ context.Context, r *http.Request) error {
		if credential != "" {
			r.Header.Set("Authorization", "Bearer "+credential)
		}
		return nil
	}
	return NewClientWithResponses(server, append([]ClientOption{WithRequestEditorFn(bearer)}, options...)...)
}
