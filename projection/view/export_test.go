package view

import "github.com/leadlog/leadlog/command/lead"

// AppendState appends the JSON of a lead's row to a buffer.
func AppendState(buffer []byte, s *lead.State) []byte {
	encoded, err := appendState(buffer, s)
	if err != nil {
		panic(err)
	}
	return encoded
}
