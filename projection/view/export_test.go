package view

import "github.com/leadlog/leadlog/command/lead"

// AppendState returns the JSON of a lead's row behind what is in a buffer.
func AppendState(buffer []byte, s *lead.State) []byte {
	encoded, err := appendState(buffer, s)
	if err != nil {
		panic(err)
	}
	return encoded
}
