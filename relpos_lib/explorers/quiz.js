/** Quiz: questions with one right answer each; every answer is told why. */
import {
  KEYS_STAY,
  figureRoot,
  follow,
  freshId,
  make,
  nodesOf,
  setText,
} from "./dom.js";

/** Text whose parts between backticks are code; markup stays as it is written. */
const written = (text) =>
  text.split("`").map((part, k) => (k % 2 ? make("code", {}, part) : part));

/** One question: a form that is handed in by its button or by Enter. */
function questionForm({ text, choices }, number, onAnswer) {
  const name = freshId("question");
  const inputs = choices.map((_, k) =>
    make("input", { type: "radio", name, value: k, required: "" }),
  );
  const labels = choices.map((choice, k) =>
    make("label", {}, inputs[k], make("span", {}, ...written(choice.text))),
  );
  const legend = make("legend", {}, make("b", {}, `${number}. `), ...written(text));
  const told = make("output", { class: "rp-quiz-told", "aria-live": "polite" });
  const node = make(
    "form",
    { class: "rp-quiz-question", ...KEYS_STAY },
    make("fieldset", {}, legend, ...labels),
    make("button", { class: "rp-button" }, "Check answer"),
    told,
  );

  function tell(answer) {
    told.replaceChildren();
    delete told.dataset.right;
    if (answer === null) return;
    const { right, feedback } = choices[answer];
    told.dataset.right = right;
    told.append(
      make("b", {}, right ? "Right." : "Not right."),
      " ",
      ...written(feedback),
    );
  }
  let shown = null;
  const show = (answer) => {
    if (answer === shown) return;
    shown = answer;
    inputs.forEach((input, k) => {
      input.checked = k === answer;
    });
    tell(answer);
  };
  node.addEventListener("change", () => tell(null));
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    shown = inputs.findIndex((input) => input.checked);
    tell(shown);
    onAnswer(shown);
  });
  return { node, show };
}

function render({ model, el }) {
  const questions = model.get("_questions");
  const forms = questions.map((question, index) =>
    questionForm(question, index + 1, (answer) => {
      const answers = model.get("answers");
      model.set(
        "answers",
        answers.map((old, k) => (k === index ? answer : old)),
      );
      model.save_changes();
    }),
  );
  const score = make("output", { class: "rp-quiz-score", "aria-live": "polite" });
  const redraw = () => {
    const answers = model.get("answers");
    forms.forEach((form, index) => form.show(answers[index]));
    const right = questions.filter(({ choices }, k) => choices[answers[k]]?.right);
    const text = `${right.length} of ${questions.length} right`;
    setText(score, text);
  };
  el.append(figureRoot("Quiz", "rp-quiz", ...nodesOf(forms), score));
  return follow(model, ["answers"], redraw);
}

export default { render };
