package emit

import "fmt"

// Words are the words of one of the lists of states of the SDK: states, reasons and changes of the inventory observer.
func (d *sdkData) Words(list string) ([]sdkWord, error) {
	for _, s := range d.SDK.States {
		if s.Name == list {
			return d.words(s.States), nil
		}
	}
	return nil, fmt.Errorf("sdk.yaml has no states %s", list)
}
