package main

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
)

// person is who a connection sends in, and the memory for it.
type person struct{ body []byte }

// people are those who came between two moments, by the order in which they were made up.
type people struct{ first, last uint64 }

var madeUp atomic.Uint64

// number is a phone number of ten digits that nobody else has, in no order.
func number(i uint64) uint64 { return 6_000_000_000 + i*2_654_435_761%3_999_999_979 }

// meet returns the people who are made up while something is done.
func meet(do func() error) (people, error) {
	first := madeUp.Load() + 1
	err := do()
	return people{first, madeUp.Load()}, err
}

// newcomers are arrivals of people who are not known yet.
func newcomers() func(*person) (body []byte, status int) { return returning(people{}, 0) }

// returning are arrivals of which a share are of people who came before, anyone as often as any other.
func returning(known people, share float64) func(*person) (body []byte, status int) {
	return func(p *person) ([]byte, int) {
		if share > 0 && rand.Float64() < share {
			return p.arrive(number(known.first+rand.Uint64N(known.last-known.first+1)), 200)
		}
		return p.arrive(number(madeUp.Add(1)), 201)
	}
}

// arrive is the body of an arrival, and the status it should get.
func (p *person) arrive(phone uint64, status int) ([]byte, int) {
	p.body = append(p.body[:0], `{"name":"Asha Rao","phone":"+91`...)
	p.body = strconv.AppendUint(p.body, phone, 10)
	p.body = append(p.body, `","email":"a`...)
	p.body = strconv.AppendUint(p.body, phone, 10)
	p.body = append(p.body, `@example.com","metadata":{"source":"website","utm_campaign":"diwali"},"customFields":{"city":"Pune"}}`...)
	return p.body, status
}
