package schema

import "strings"

// TouchCredential is the credential of an event as touches have it: user:{sub} for jwt:{sub}.
func TouchCredential(credential string) string {
	if sub, ok := strings.CutPrefix(credential, "jwt:"); ok {
		return "user:" + sub
	}
	return credential
}
