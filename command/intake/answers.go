package intake

import (
	"cmp"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/command/contact"
)

// leaf is a value of a post that is no object, with the names that lead to it.
type leaf struct {
	path  []string
	value any

	question bool          // it answers a question, so it is no metadata, except of a campaign
	hidden   bool          // it is a parameter of a form's address, and counts where no answer does
	label    string        // the question; empty: the name tells what the value is
	means    contact.Field // what the sender says that the value is; empty: the name tells
}

// answersOf returns what a post of a kind says about a person, in its order. Of a kind without a form of its own it is
// all values of the post.
func answersOf(kind string, body any) []leaf {
	post, _ := body.(map[string]any)
	switch kind {
	case GoogleLeadForm:
		return answersIn(post["user_column_data"], func(column map[string]any) (string, any) {
			return cmp.Or(textIn(column, "column_id"), textIn(column, "column_name")), column["string_value"]
		})
	case MetaLeadAds:
		return answersIn(post["field_data"], func(field map[string]any) (string, any) {
			values, _ := field["values"].([]any)
			if len(values) == 1 {
				return textIn(field, "name"), values[0]
			}
			return textIn(field, "name"), values
		})
	case Typeform:
		response, _ := post["form_response"].(map[string]any)
		return typeformAnswers(response)
	}
	leaves := slices.DeleteFunc(described(leavesOf(body)), func(l leaf) bool { return l.value == nil || l.value == "" })
	markGravityNames(post, leaves)
	return leaves
}

// answersIn returns the answers in a list of objects.
func answersIn(list any, read func(map[string]any) (name string, value any)) (answers []leaf) {
	elements, _ := list.([]any)
	for _, element := range elements {
		object, _ := element.(map[string]any)
		if name, value := read(object); name != "" && filled(value) && len(answers) < maxLeaves {
			answers = append(answers, leaf{path: []string{name}, value: value, question: true})
		}
	}
	return answers
}

// typeformAnswers returns the answers of a response, and then its hidden fields.
func typeformAnswers(response map[string]any) []leaf {
	titles := map[string]string{}
	definition, _ := response["definition"].(map[string]any)
	addTitles(titles, definition["fields"])
	list, _ := response["answers"].([]any)
	var answers []leaf
	for _, element := range list {
		answer, _ := element.(map[string]any)
		field, _ := answer["field"].(map[string]any)
		id, kind := textIn(field, "id"), textIn(answer, "type")
		one := leaf{question: true, value: typeformValue(kind, answer[kind])}
		name := cmp.Or(textIn(field, "ref"), id)
		if name == "" || !filled(one.value) || len(answers) == maxLeaves {
			continue
		}
		one.path, one.label = []string{name}, cmp.Or(titles[id], name)
		switch kind {
		case "email":
			one.means = contact.FieldEmail
		case "phone_number":
			one.means = contact.FieldPhone
		case "text", "number":
		default:
			one.means = contact.FieldNotPerson
		}
		answers = append(answers, one)
	}
	hidden, _ := response["hidden"].(map[string]any)
	for _, name := range sortedKeys(hidden) {
		if filled(hidden[name]) && len(answers) < maxLeaves {
			answers = append(answers, leaf{path: []string{name}, value: hidden[name], hidden: true})
		}
	}
	return answers
}

// addTitles adds the titles of a form's questions by their ids, also of those in groups.
func addTitles(titles map[string]string, fields any) {
	list, _ := fields.([]any)
	for _, element := range list {
		field, _ := element.(map[string]any)
		titles[textIn(field, "id")] = textIn(field, "title")
		properties, _ := field["properties"].(map[string]any)
		addTitles(titles, properties["fields"])
	}
}

// typeformValue returns the value of an answer: that of a choice is its label.
func typeformValue(kind string, value any) any {
	chosen, _ := value.(map[string]any)
	switch kind {
	case "choice":
		if label := chosen["label"]; filled(label) {
			return label
		}
		return chosen["other"]
	case "choices":
		labels, _ := chosen["labels"].([]any)
		if other := chosen["other"]; filled(other) {
			labels = append(labels[:len(labels):len(labels)], other)
		}
		return labels
	}
	return value
}

func textIn(object map[string]any, name string) string {
	text, _ := object[name].(string)
	return strings.TrimSpace(text)
}

// filled reports whether a value is not empty.
func filled(value any) bool {
	switch value := value.(type) {
	case nil:
		return false
	case string:
		return strings.TrimSpace(value) != ""
	case []any:
		return len(value) > 0
	}
	return true
}

// isTestLead reports whether answers are those that Meta's tool for testing makes.
func isTestLead(answers []leaf) bool {
	const dummy = "<test lead: dummy data"
	for _, answer := range answers {
		text := strings.ToLower(strings.TrimSpace(textOf(answer.value)))
		if strings.HasPrefix(text, dummy) || strings.HasPrefix(text, dummy[1:]) ||
			text == "test@meta.com" || text == "test@fb.com" {
			return true
		}
	}
	return false
}
