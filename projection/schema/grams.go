package schema

import (
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Searched returns a text in the form in which searches compare it: in lower case, with accents in one normal form.
func Searched(text string) string { return norm.NFC.String(strings.ToLower(text)) }

// Grams is a Bloom filter of what lists search for in the leads of a block. Each substring of one to four, and of six, bytes of the
// searched text sets one or two bits; so does a temperature, and a temperature with a source. If one of its bits is not set,
// something is in none of these leads; if all are set, it may be.
//
// It is stored in views.lead_block, which has to be emptied when the code below changes.
type Grams [gramBytes]byte

const (
	gramBytes = 3840 // two rows to a page; a fifth of the bits of 128 leads
	// longGram distinguishes a frequent first name with the beginning of a last name from the first name alone.
	longGram = 6
	// shortGram is the longest of those that set two bits: a search may have nothing else, and many blocks have any one bit.
	shortGram = 2
	// gramsAsked bounds how many bits a search looks at. More would leave out hardly more.
	gramsAsked = 8
)

// bitOf is the place of a gram's bit, the gram's bytes being a number. No text has a zero byte, so that a short one is not
// another that is longer.
func bitOf(gram uint64) uint32 {
	bits := uint32(gram) ^ uint32(gram>>32)*0x9e3779b1
	bits ^= bits >> 15
	bits *= 0x2c1b3c6d // an odd number that spreads what it multiplies; any other would do
	bits ^= bits >> 12
	bits *= 0x297a2d39
	return uint32(uint64(bits) * (8 * gramBytes) >> 32)
}

// other is a gram by which a short one sets a second bit.
func other(gram uint64) uint64 { return uint64(^uint32(gram)) }

// AddLead sets the bits of a lead.
func (g *Grams) AddLead(search, temperature, source string) {
	g.add(search)
	for _, bit := range append(WordBits(temperature, ""), WordBits(temperature, source)...) {
		g.set(bit)
	}
}

func (g *Grams) set(bit uint32) { g[bit/8] |= 1 << (bit % 8) }

func (g *Grams) add(text string) {
	var last uint64 // eight bytes
	for i := range len(text) {
		last = last<<8 | uint64(text[i])
		for size := 1; size <= min(longGram, i+1); size++ {
			if size == longGram-1 {
				continue
			}
			gram := last & (1<<(8*size) - 1)
			g.set(bitOf(gram))
			if size <= shortGram {
				g.set(bitOf(other(gram)))
			}
		}
	}
}

// WordBits returns the bits of a temperature, alone or with a source.
func WordBits(temperature, source string) []uint32 {
	word := uint32(2166136261) // FNV-1a
	for _, text := range [...]string{temperature, " ", source} {
		for i := range len(text) {
			word = (word ^ uint32(text[i])) * 16777619
		}
	}
	return []uint32{bitOf(uint64(word)), bitOf(uint64(^word))}
}

// GramsOf returns the bits that a search for a text looks at, always the same number: those of the text's longest grams, spread
// over it, and of shorter ones when there are few of these; some may be repeated.
func GramsOf(text string) (bits [gramsAsked]uint32) {
	var all []uint32
	longest := min(longGram, len(text))
	if longest == longGram-1 {
		longest--
	}
	for size := longest; size > 0; size-- {
		if size == longGram-1 {
			continue
		}
		for i := range len(text) - size + 1 {
			if size < longest && len(all) >= gramsAsked {
				break
			}
			var gram uint64
			for _, b := range []byte(text[i : i+size]) {
				gram = gram<<8 | uint64(b)
			}
			if bit := bitOf(gram); !slices.Contains(all, bit) {
				all = append(all, bit)
			}
			if size <= shortGram {
				all = append(all, bitOf(other(gram)))
			}
		}
	}
	for i := range bits {
		bits[i] = all[i*max(len(all), gramsAsked)/gramsAsked%len(all)]
	}
	return bits
}
