package event

import (
	"reflect"
	"strings"
)

// Class says whether a field of a fact is about a person. It is the field's tag "personal". Facts on streams about a
// person are sealed, but for the fields that say no; a field of a part is in the class of the part.
type Class string

// Classes of fields. A field of a type that is on no stream about a person has none.
const (
	Plain    Class = "no"
	Personal Class = "yes"
	Content  Class = "content" // personal, and too large for the log
)

// Classes returns the classes of a type's fields, by the names of their JSON. Known is false for a type that is not in
// the catalogue.
func Classes(eventType string) (of map[string]Class, known bool) {
	entry, known := catalogue[eventType]
	return entry.classes, known
}

func classesOf(fact reflect.Type) map[string]Class {
	classes := map[string]Class{}
	for _, field := range reflect.VisibleFields(fact) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !field.Anonymous {
			classes[name] = Class(field.Tag.Get("personal"))
		}
	}
	return classes
}
