"""
title: training the intent classifier: cross entropy gets Int targets where it expects Long
expect: collision
thread: https://github.com/patrickloeber/pytorch-chatbot/issues/17

Expectation, written first: the tag indices are gathered into a NumPy array of the platform's C int (the default on Windows), so the data
loader delivers int32 labels, and nothing casts them on the way to the loss. cross_entropy refuses int32 class indices. The array must be
int64, or the labels must be cast to long in the dataset or in the loop.
"""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

INTENTS = {
    "greeting": ["hi there", "hello friend", "good morning"],
    "goodbye": ["see you later", "bye for now", "have a nice day"],
    "payments": ["do you take cash", "do you take card", "can i pay by card"],
    "hours": ["when are you open", "are you open now", "what are your hours"],
}


def bag_of_words(tokenized_sentence, words):
    bag = np.zeros(len(words), dtype=np.float32)
    for idx, w in enumerate(words):
        if w in tokenized_sentence:
            bag[idx] = 1
    return bag


class NeuralNet(nn.Module):
    def __init__(self, input_size, hidden_size, num_classes):
        super().__init__()
        self.l1 = nn.Linear(input_size, hidden_size)
        self.l2 = nn.Linear(hidden_size, hidden_size)
        self.l3 = nn.Linear(hidden_size, num_classes)
        self.relu = nn.ReLU()

    def forward(self, x):
        out = self.relu(self.l1(x))
        out = self.relu(self.l2(out))
        return self.l3(out)


class ChatDataset(Dataset):
    def __init__(self, x, y):
        self.n_samples = len(x)
        self.x_data = torch.from_numpy(x)
        self.y_data = torch.from_numpy(y)  # BORN

    def __getitem__(self, index):
        return self.x_data[index], self.y_data[index]

    def __len__(self):
        return self.n_samples


def prepare():
    tags = sorted(INTENTS)
    all_words = sorted({w for sentences in INTENTS.values() for s in sentences for w in s.split()})
    x_train, y_train = [], []
    for tag, sentences in INTENTS.items():
        for s in sentences:
            x_train.append(bag_of_words(s.split(), all_words))
            y_train.append(tags.index(tag))
    return np.array(x_train), np.array(y_train, dtype=np.intc), tags  # BORN


def main():
    torch.manual_seed(0)
    x_train, y_train, tags = prepare()
    train_loader = DataLoader(ChatDataset(x_train, y_train), batch_size=4, shuffle=True)
    device = torch.device("cpu")
    model = NeuralNet(x_train.shape[1], 8, len(tags)).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for epoch in range(3):
        for words, labels in train_loader:
            words = words.to(device)
            labels = labels.to(device)  # BORN
            outputs = model(words)
            loss = criterion(outputs, labels)  # BORN COLLIDES
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"Epoch [{epoch + 1}/3], Loss: {loss.item():.4f}")


if __name__ == "__main__":
    main()
