package schema

import "strings"

// EventCredential is the credential of a touch as its event has it.
func EventCredential(credential string) string {
	if sub, ok := strings.CutPrefix(credential, "user:"); ok {
		return "jwt:" + sub
	}
	return credential
}
