package sealed

// scanner walks over the members of a JSON object. It takes for granted that the JSON is good, as what event.Encode
// writes is; what is no compact object it does not understand.
type scanner struct {
	rest  []byte
	begun bool
	done  bool // the object ended where the data did
}

// next gives a member's name and the whole member. No more: the object is done, or not understood.
func (s *scanner) next() (name, member []byte, more bool) {
	switch {
	case !s.begun:
		if len(s.rest) < 2 || s.rest[0] != '{' {
			return nil, nil, false
		}
		s.begun, s.rest = true, s.rest[1:]
		if s.rest[0] == '}' {
			s.done = len(s.rest) == 1
			return nil, nil, false
		}
	case len(s.rest) > 0 && s.rest[0] == ',':
		s.rest = s.rest[1:]
	default:
		s.done = len(s.rest) == 1 && s.rest[0] == '}'
		return nil, nil, false
	}
	end := stringEnd(s.rest)
	if end < 0 || end >= len(s.rest) || s.rest[end] != ':' {
		return nil, nil, false
	}
	name = s.rest[1 : end-1]
	length := valueEnd(s.rest[end+1:])
	if length <= 0 {
		return nil, nil, false
	}
	member, s.rest = s.rest[:end+1+length], s.rest[end+1+length:]
	return name, member, true
}

// stringEnd is the length of the string that a text begins with, or -1.
func stringEnd(text []byte) int {
	if len(text) == 0 || text[0] != '"' {
		return -1
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// valueEnd is the length of the value that a text begins with and that another member, or the end of the object, follows.
func valueEnd(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			end := stringEnd(text[i:])
			if end < 0 {
				return -1
			}
			i += end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}
