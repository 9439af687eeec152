package schema

import "strings"

// TouchCredential is the credential of an event as touches have it: user:{sub} for jwt:{sub}.
func TouchCredential(credential string) string {
	if sub, ok := strings.CutPrefix(credential, "jwt:"); ok {
		return "user:" + sub
	}
	return credential
}

// EventCredential is the credential of a touch as its event has it.
func EventCredential(credential string) string {
	if sub, ok := strings.CutPrefix(credential, "user:"); ok {
		return "jwt:" + sub
	}
	return credential
}
