package schema

import "slices"

// Grams is a Bloom filter of what lists ask of the leads of a block: each part of one to four bytes of a text that is
// searched sets a bit or two, and so does a temperature, and a temperature with a source. What lacks a bit is in none of these
// leads; what has all of its bits may be.
//
// So it stands in views.lead_block: whoever changes what follows has to empty that table.
type Grams [gramBytes]byte

const (
	gramBytes   = 3840 // two rows to a page; a sixth of the bits of 128 leads
	longestGram = 4
	// shortGram is the longest of those that set two bits: a search may have nothing else, and many blocks have any one bit.
	shortGram = 2
	// gramsAsked bounds how many bits a search looks at. More would leave out hardly more.
	gramsAsked = 8
)

// bitOf is the place of a gram's bit, the gram's bytes being a number. No text has a zero byte, so that a short one is not
// another that is longer.
func bitOf(gram uint32) uint32 {
	gram ^= gram >> 15
	gram *= 0x2c1b3c6d // an odd number that spreads what it multiplies; any other would do
	gram ^= gram >> 12
	gram *= 0x297a2d39
	return uint32(uint64(gram) * (8 * gramBytes) >> 32)
}

// AddLead sets the bits of a lead.
func (g *Grams) AddLead(search, temperature, source string) {
	g.add(search)
	for _, bit := range append(WordBits(temperature, ""), WordBits(temperature, source)...) {
		g.set(bit)
	}
}

func (g *Grams) set(bit uint32) { g[bit/8] |= 1 << (bit % 8) }

func (g *Grams) add(text string) {
	var last uint32 // four bytes
	for i := range len(text) {
		last = last<<8 | uint32(text[i])
		for size := 1; size <= min(longestGram, i+1); size++ {
			gram := last & (1<<(8*size) - 1)
			g.set(bitOf(gram))
			if size <= shortGram {
				g.set(bitOf(^gram))
			}
		}
	}
}

// WordBits are places of bits of a temperature, alone or with a source.
func WordBits(temperature, source string) []uint32 {
	word := uint32(2166136261) // FNV-1a
	for _, text := range [...]string{temperature, " ", source} {
		for i := range len(text) {
			word = (word ^ uint32(text[i])) * 16777619
		}
	}
	return []uint32{bitOf(word), bitOf(^word)}
}

// GramsOf are places of bits that a text has, always as many: those of its longest grams, spread over it, and of shorter
// ones when there are few, some more than once.
func GramsOf(text string) (bits [gramsAsked]uint32) {
	var all []uint32
	longest := min(longestGram, len(text))
	for size := longest; size > 0; size-- {
		for i := range len(text) - size + 1 {
			if size < longest && len(all) >= gramsAsked {
				break
			}
			var gram uint32
			for _, b := range []byte(text[i : i+size]) {
				gram = gram<<8 | uint32(b)
			}
			if bit := bitOf(gram); !slices.Contains(all, bit) {
				all = append(all, bit)
			}
			if size <= shortGram {
				all = append(all, bitOf(^gram))
			}
		}
	}
	for i := range bits {
		bits[i] = all[i*max(len(all), gramsAsked)/gramsAsked%len(all)]
	}
	return bits
}
