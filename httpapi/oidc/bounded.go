package oidc

import "net/http"

// maxAnswer is the maximum size of an answer of the provider, in bytes. The libraries read answers whole.
const maxAnswer = 1 << 20

// bounded is a transport whose responses end with an error after maxAnswer.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxAnswer)
	}
	return response, err
}
