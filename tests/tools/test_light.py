"""What a page leaves out: widgets that nobody sees."""

from book._ext.light import only_needed

SAVED = {
    "version_major": 2,
    "state": {
        "shown": {"state": {"layout": "IPY_MODEL_outer", "_esm": "shown"}},
        "outer": {"state": {"inside": ["IPY_MODEL_inner"]}},
        "inner": {"state": {"back": "IPY_MODEL_outer"}},
        "other": {"state": {"layout": "IPY_MODEL_unseen", "_esm": "other"}},
        "unseen": {"state": {}},
    },
}


def test_what_a_shown_widget_refers_to_is_kept():
    kept = only_needed(SAVED, {"shown"})
    assert kept["version_major"] == 2
    assert kept["state"] == {
        name: SAVED["state"][name] for name in ("shown", "outer", "inner")
    }
    assert len(SAVED["state"]) == 5


def test_views_without_a_widget_are_no_matter():
    assert only_needed(SAVED, {"lost"})["state"] == {}
    assert only_needed({"state": {}}, set()) == {"state": {}}
